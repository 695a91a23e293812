"""The command `interlock`: run a program under a lease; see and settle who holds what.

Everything is imported by the command that needs it: `interlock --help` answers in a few dozen milliseconds.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from interlock.cli import codes

if TYPE_CHECKING:
    from argparse import Namespace

    from interlock.cli.outlet import Outlet


def main(argv: list[str] | None = None) -> int:
    """Do what the command line says; return the exit code. Never raises for what a user can mend."""
    _occupy_standard_streams()
    try:
        code = _main(sys.argv[1:] if argv is None else argv)
        return _flushed(code)
    except BrokenPipeError:
        _discard_output()
        return codes.died_of(13)  # SIGPIPE, as of any filter; its name is unknown to Windows
    except KeyboardInterrupt:
        return codes.died_of(2)


def _flushed(code: int) -> int:
    """The code to exit with, once all output is written. Here, not at exit: there a failure causes a traceback."""
    from interlock.cli.outlet import Outlet, Unwritable

    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _discard_output()
        Outlet(None, sys.stderr, json=False).say(str(Unwritable(error.strerror or str(error))))
        return codes.UNWRITABLE
    return code


def _main(argv: list[str]) -> int:
    from interlock.cli.arguments import parse
    from interlock.cli.outlet import Outlet, Unwritable

    try:
        options = parse(argv)
    except SystemExit as end:  # argparse has said what it had to say
        return end.code if isinstance(end.code, int) else codes.USAGE
    outlet = Outlet(sys.stdout, sys.stderr, json=options.json)
    from interlock.cli.words import printable
    from interlock.errors import InterlockError

    try:
        return _COMMANDS[options.command](options, outlet)
    except Unwritable as error:
        _discard_output()
        outlet.error(str(error), codes.UNWRITABLE)
        return codes.UNWRITABLE
    except (InterlockError, ValueError, OverflowError) as error:
        code = codes.of(error)
        if code is None:
            raise
        outlet.error(printable(str(error)), code)
        return code


def _occupy_standard_streams() -> None:
    """Put the null device where a standard stream was closed (`>&-`).

    The next file or socket would get its number, and whatever is written to that stream would go there. A command
    of `interlock run` still finds the stream closed: what is opened here is not inherited.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one


def _discard_output() -> None:
    """Let what standard output still holds go nowhere, or Python would try to write it once more at its end."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(options: Namespace, outlet: Outlet) -> int:
    from interlock.cli.run import run

    return run(options, outlet)


def _ls(options: Namespace, outlet: Outlet) -> int:
    from interlock.cli.looking import ls

    return ls(options, outlet)


def _inspect(options: Namespace, outlet: Outlet) -> int:
    from interlock.cli.looking import inspect

    return inspect(options, outlet)


def _watch(options: Namespace, outlet: Outlet) -> int:
    from interlock.cli.watch import watch

    return watch(options, outlet)


def _top(options: Namespace, outlet: Outlet) -> int:
    from interlock.cli.top import top

    return top(options, outlet)


def _evict(options: Namespace, outlet: Outlet) -> int:
    from interlock.cli.evict import evict

    return evict(options, outlet)


def _quorum(options: Namespace, outlet: Outlet) -> int:
    from interlock.cli.quorum import quorum

    return quorum(options, outlet)


def _version(options: Namespace, outlet: Outlet) -> int:
    from interlock import __version__

    python = ".".join(map(str, sys.version_info[:3]))
    if outlet.json:
        outlet.document({"version": __version__, "python": python})
    else:
        outlet.line(f"interlock {__version__} (Python {python})")
    return 0


_COMMANDS = {
    "run": _run,
    "ls": _ls,
    "inspect": _inspect,
    "watch": _watch,
    "top": _top,
    "evict": _evict,
    "quorum": _quorum,
    "version": _version,
}
