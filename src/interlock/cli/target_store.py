"""The store that a command works on: which one it is, and opening it only to look."""

from __future__ import annotations

import os
import time

from interlock import urls
from interlock.blocking import Client, connect
from interlock.cli.formatting import printable
from interlock.cli.output import Output
from interlock.errors import StoreUnfit

FILE_POLL_PERIOD_S = 0.25  # seconds between two looks for a lock file that does not exist yet
NAME_THE_STORE = "to share locks with other users, name the store with --url or $INTERLOCK_URL"


def open_existing(url: str | None) -> Client:
    """A client for a command that only looks: it makes no lock file where there is none."""
    if (path := _missing_file(url)) is not None:
        raise StoreUnfit(f"{path} does not exist, so nothing was ever locked in it; {_advice(url)}")
    return connect(url)


def await_existing(url: str | None, output: Output) -> Client:
    """As `open_existing`, for a command that goes on looking: it says that the lock file does not exist,
    and waits for it.
    """
    if (path := _missing_file(url)) is not None:
        sentence = f"{path} does not exist yet, so nothing is locked in it; waiting for it; {_advice(url)}"
        output.warn(printable(sentence))
        while _is_missing(path):
            time.sleep(FILE_POLL_PERIOD_S)
    return connect(url)


def _missing_file(url: str | None) -> str | None:
    """The path of the lock file, if the store is one and does not exist."""
    path = urls.file_of(url or urls.default())
    return path if path is not None and _is_missing(path) else None


def _is_missing(path: str) -> bool:
    """Whether there is no such file.

    In a folder that we may not enter there may be one, so opening it must tell.
    """
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: no file can have that name
        return True
    except OSError:
        pass
    return False


def _advice(url: str | None) -> str:
    return f"{whose()}; {NAME_THE_STORE}" if is_default(url) else "check --url and $INTERLOCK_URL"


def name(url: str | None) -> str:
    """The store as people name it, without passwords."""
    return printable(urls.named(url))


def is_default(url: str | None) -> bool:
    """Whether the user's own file is meant, because no other store was named."""
    return (url or urls.default()) == "sqlite://"


def whose() -> str:
    """A sentence that names the owner of the default file: sudo and cron jobs often expect another user's."""
    return f"this is the default file of {_user()}, and each user has another one"


def under_sudo(url: str | None) -> str:
    """A warning that sudo has changed the default store, so that no lock is shared with the caller; "" if
    none is due.
    """
    caller = os.environ.get("SUDO_USER", "")
    if not is_default(url) or not caller or caller == _user():
        return ""
    return (
        f"under sudo the store is {name(url)}, the file of {_user()}, not that of {printable(caller)}; "
        f"{NAME_THE_STORE}"
    )


def _user() -> str:
    try:
        from pwd import getpwuid

        return getpwuid(os.geteuid()).pw_name
    except (ImportError, KeyError):  # no such thing on this system, or a user without a name
        return "this user"
