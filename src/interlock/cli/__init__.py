"""The command `interlock`: run a program under a lease; see and settle who holds what.

Everything is imported by the command that needs it: `interlock --help` answers in a few dozen milliseconds.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from interlock._support import notices, standard_streams
from interlock.cli import exit_codes

if TYPE_CHECKING:
    from argparse import Namespace
    from typing import TextIO

    from interlock.cli.output import Output


def main(argv: list[str] | None = None) -> int:
    """Do what the command line says; return the exit code. Never raises for what a user can mend."""
    standard_streams.occupy()
    try:
        code = _main(sys.argv[1:] if argv is None else argv)
        return _flushed(code)
    except BrokenPipeError:
        _discard_output()
        return exit_codes.died_of(13)  # SIGPIPE, as of any filter; its name is unknown to Windows
    except KeyboardInterrupt:
        return exit_codes.died_of(2)
    finally:
        _give_up_errors()


def _flushed(code: int) -> int:
    """The code to exit with, once all output is written.

    Here, not at exit: there a failure causes a traceback.
    """
    from interlock.cli.output import Output, Unwritable

    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _discard_output()
        Output(None, sys.stderr, json=False).say(str(Unwritable(error.strerror or str(error))))
        return exit_codes.UNWRITABLE
    return code


def _main(argv: list[str]) -> int:
    from interlock.cli.arguments import parse
    from interlock.cli.output import Output

    try:
        options = parse(argv)
    except SystemExit as end:  # argparse has said what it had to say
        return end.code if isinstance(end.code, int) else exit_codes.USAGE
    output = Output(sys.stdout, sys.stderr, json=options.json)
    # With -v they are logged at once, as those of any program.
    held_back = [] if getattr(options, "verbose", False) else notices.hold_back()
    code = _code_of(options, output)
    if code in (exit_codes.UNAVAILABLE, exit_codes.LOST):  # they may say why
        for sentence in held_back:
            output.say(sentence)
    return code


def _code_of(options: Namespace, output: Output) -> int:
    """Do the command; return its exit code."""
    from interlock.cli.formatting import printable
    from interlock.cli.output import Unwritable
    from interlock.errors import InterlockError

    try:
        return _COMMANDS[options.command](options, output)
    except Unwritable as error:
        _discard_output()
        output.error(str(error), exit_codes.UNWRITABLE)
        return exit_codes.UNWRITABLE
    except (InterlockError, ValueError, OverflowError) as error:
        code = exit_codes.of(error)
        if code is None:
            raise
        output.error(printable(str(error)), code)
        return code


def _discard_output() -> None:
    """Let what standard output still holds go nowhere, or Python would try to write it once more at its
    end.
    """
    if sys.stdout is not None:
        _discard(sys.stdout)


def _give_up_errors() -> None:
    """If what standard error still holds cannot be written, let it go nowhere: at its end Python would
    exit with 120 for it.
    """
    if sys.stderr is not None:
        try:
            sys.stderr.flush()
        except OSError:
            _discard(sys.stderr)
        except ValueError:  # closed
            pass


def _discard(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(options: Namespace, output: Output) -> int:
    from interlock.cli.run import run

    return run(options, output)


def _doctor(options: Namespace, output: Output) -> int:
    from interlock.cli.doctor import doctor

    return doctor(options, output)


def _ls(options: Namespace, output: Output) -> int:
    from interlock.cli.inspection import ls

    return ls(options, output)


def _inspect(options: Namespace, output: Output) -> int:
    from interlock.cli.inspection import inspect

    return inspect(options, output)


def _watch(options: Namespace, output: Output) -> int:
    from interlock.cli.watch import watch

    return watch(options, output)


def _top(options: Namespace, output: Output) -> int:
    from interlock.cli.top import top

    return top(options, output)


def _evict(options: Namespace, output: Output) -> int:
    from interlock.cli.evict import evict

    return evict(options, output)


def _quorum(options: Namespace, output: Output) -> int:
    from interlock.cli.quorum import quorum

    return quorum(options, output)


def _sql(options: Namespace, output: Output) -> int:
    from interlock.cli.sql import sql

    return sql(options, output)


def _lab(options: Namespace, output: Output) -> int:
    from interlock.cli.lab import lab

    return lab(options, output)


def _demo(options: Namespace, output: Output) -> int:
    from interlock.cli.lab import demo

    return demo(options, output)


def _version(options: Namespace, output: Output) -> int:
    from interlock import __version__

    python = ".".join(map(str, sys.version_info[:3]))
    if output.json:
        output.document({"version": __version__, "python": python})
    else:
        output.line(f"interlock {__version__} (Python {python})")
    return 0


_COMMANDS = {
    "run": _run,
    "ls": _ls,
    "inspect": _inspect,
    "watch": _watch,
    "top": _top,
    "evict": _evict,
    "doctor": _doctor,
    "quorum": _quorum,
    "sql": _sql,
    "lab": _lab,
    "demo": _demo,
    "version": _version,
}
