"""Standard streams that are closed (`2>&-`, some supervisors): no file or socket of ours gets their numbers.

The kernel gives the lowest free number to the next descriptor. If that is 0, 1 or 2, then everything that is
written to the stream, by Python, a C library or a forked child, goes into our file or connection: a warning
would overwrite the header of a lock file. And a daemon that puts /dev/null in the place of its streams would
close the descriptor, and with it the lock that shows that its process lives. SQLite avoids these numbers in
the same way (SQLITE_MINIMUM_FILE_DESCRIPTOR).

Not done: moving our descriptors to higher numbers (F_DUPFD). Most are made by other libraries, and closing a
second descriptor of a lock file drops the locks that SQLite has on it.
"""

from __future__ import annotations

import os
from contextlib import suppress

MIN_DESCRIPTOR = 3  # the lowest number that a descriptor of ours may have


def occupy() -> None:
    """Put the null device where a standard stream is closed; to be called before anything is opened that
    stays open.

    It is opened the wrong way around, so that reading and writing still fail; and programs that this one
    starts still find the stream closed. Where there is no null device, nothing is done.
    """
    for number in range(MIN_DESCRIPTOR):
        try:
            os.fstat(number)
        except OSError:
            with suppress(OSError):
                # Gets the lowest free number: this one, unless another thread was quicker.
                made = os.open(os.devnull, os.O_RDONLY if number else os.O_WRONLY)
                if made > number:
                    os.close(made)
