"""Exit codes, as sysexits.h and the shell have them."""

from __future__ import annotations

import errno

NOBODY = 1  # evict met nobody
USAGE = 64
UNAVAILABLE = 69  # the store did not answer, or cannot be used as it is
UNWRITABLE = 74  # standard output took nothing more
NOT_ACQUIRED = 75  # try again later
LOST = 76  # the lease was lost while the command ran
CANNOT_EXECUTE = 126
NOT_FOUND = 127


def died_of(signal: int) -> int:
    """The code by which a shell tells that a program died of a signal."""
    return 128 + signal


def of_exec(failure: int) -> int:
    """The code for a command that could not be executed, by its errno; as the shell."""
    return NOT_FOUND if failure in (errno.ENOENT, errno.ENOTDIR) else CANNOT_EXECUTE


def of(error: Exception) -> int | None:
    """The code for an error a user can mend; None for one that is ours to mend."""
    from interlock import errors

    if isinstance(error, (errors.StoreUnavailable, errors.StoreUnfit)):
        return UNAVAILABLE
    if isinstance(error, (errors.AcquireTimeout, errors.Evicted)):
        return NOT_ACQUIRED
    if isinstance(error, errors.LeaseLost):
        return LOST
    if isinstance(error, errors.InterlockError) and isinstance(error, ValueError):
        return USAGE  # names, URLs, settings
    if isinstance(error, errors.ForeignKey):
        return USAGE  # refused until --foreign is given
    if isinstance(error, OverflowError):
        return USAGE  # a timeout beyond what threads can wait
    return None
