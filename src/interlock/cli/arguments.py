"""The command line: what may be said, and what each word means."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import NoReturn

from interlock.cli import codes

OVERVIEW = """\
Distributed locks from the command line. The store is --url, else $INTERLOCK_URL, else
the embedded file of this user."""

RUN = """\
Run CMD while holding the resource NAME: wait for it, renew it while CMD runs, release it
when CMD ends. Contenders are other `interlock run` and programs that use the interlock library."""

RUN_MORE = """\
CMD finds in its environment:
  INTERLOCK_RESOURCE  NAME
  INTERLOCK_TOKEN     the fencing token: greater than that of every earlier holder; let what you
                      write to refuse smaller ones
  INTERLOCK_TTL       seconds the lease lives unrenewed
  INTERLOCK_DEADLINE  when it would end, as of the start of CMD: seconds on CLOCK_BOOTTIME
                      (CLOCK_MONOTONIC on macOS); renewals move it while CMD runs

Signals sent to this process are passed on to CMD. CMD and all it has started get SIGTERM, and
SIGKILL after the grace, when the lease is lost: in time, if the store cannot be reached, so that all
is over before the lease ends. They are killed at once if this process is killed. A lease is not
renewed while this process is stopped (Ctrl-Z): stopped for longer than the ttl, CMD is ended.

exit codes:
  the exit code of CMD, or 128+N if it died of signal N
  64 usage   69 store unreachable or unfit   75 not acquired (see -E)
  76 lease lost while CMD ran   126 CMD cannot be executed   127 CMD not found"""

WATCH = """\
Print a line whenever somebody comes, is let in, or leaves. Without NAME all resources are followed, by
looking twice a second: what comes and goes in between is not seen."""


EVICT = """\
Take a resource from all who hold it; the next in the queue comes in at once. A victim is told at its next renewal
(an `interlock run` at once) and may go on until then: only what checks its token is safe from it.
Exits with 1 if there was nobody to evict."""

QUORUM = """\
The nodes of a redlock:// one by one. A node that restarted empty, was flushed or is new has no vote until all that it
may have granted has lapsed; clients then admit it by themselves."""

STATUS = """\
One line a node: whether it votes, its run id, how far its clock is ahead of this machine's, the highest number
it accepted; with NAME also what it says of that resource. Changes nothing. Exits with 69 if no lock can be had."""

ADMIT = """\
Give NODE its vote before its quarantine is over. While something is held that it was part of, that can let a second holder
in; tokens rise all the same."""

INIT = """\
Let all nodes begin now. Blank ones start for the asking (the first lock starts them, too). Where some were used and
a majority lost its memory, nobody but you can tell when nothing is held any more: then say --yes."""


class Formatter(argparse.RawDescriptionHelpFormatter):
    """argparse's own, told the width: to ask for it, it would import shutil, 4 ms of everybody's --help."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=24, width=98)


class Parser(argparse.ArgumentParser):
    """argparse, but wrong usage exits with 64 and one sentence: 2 may be the command's own code."""

    def error(self, message: str) -> NoReturn:
        self.exit(codes.USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


def parse(argv: list[str]) -> argparse.Namespace:
    """The options; exits as argparse does, with 64 for wrong usage."""
    words, command = argv, None
    if "--" in argv:
        cut = argv.index("--")
        if "run" in argv[:cut]:  # what follows is the command's, however much it looks like ours
            words, command = argv[:cut], argv[cut + 1 :]
    parser, run = _parsers()
    options = parser.parse_args(words)
    if options.command == "run":
        options.argv = command
        _check_run(options, run)
    return options


def _check_run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    if not options.argv:
        extra = " ".join(options.misplaced) or "CMD"
        parser.error(f"the command stands after --, as in: interlock run {options.name} -- {extra}")
    if options.misplaced:
        parser.error(
            f"{options.misplaced[0]!r} stands between NAME and --; options and one NAME are all that may"
        )
    if options.permits is not None and options.capacity is None:
        parser.error("--permits needs --capacity: how many permits there are in all")
    if options.capacity is not None and options.shared:
        parser.error("-s is for a read-write lock, --capacity for a semaphore: use one of them")


def _parsers() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    parser = Parser(prog="interlock", description=OVERVIEW, formatter_class=Formatter)
    _add_everywhere(parser, url=None, json=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def add(name: str, help: str, description: str = "", epilog: str = "") -> argparse.ArgumentParser:
        command = commands.add_parser(
            name, help=help, description=description or help, epilog=epilog, formatter_class=Formatter
        )
        # A default of the inner parser would undo what stands before the command.
        _add_everywhere(command, url=argparse.SUPPRESS, json=argparse.SUPPRESS)
        return command

    run = add("run", "run a command while holding a resource", RUN, RUN_MORE)
    _add_run(run)
    listing = add("ls", "list resources that are held or waited for")
    listing.add_argument("prefix", nargs="?", default="", metavar="PREFIX", help="only names that begin so")
    inspect = add("inspect", "show who holds a resource and who waits, in order")
    inspect.add_argument("name", metavar="NAME")
    watch = add("watch", "follow who comes, holds and leaves", WATCH)
    watch.add_argument("name", nargs="?", metavar="NAME")
    evict = add("evict", "take a resource from its holders; each is told why", EVICT)
    evict.add_argument("name", metavar="NAME")
    evict.add_argument("--reason", required=True, metavar="TEXT", help="what its holder is told")
    evict.add_argument("--id", metavar="ID", help="this one claim, holder or waiter, as inspect shows it")
    _add_quorum(add("quorum", "see and mend the nodes of a quorum (redlock://)", QUORUM))
    add("version", "say which version this is")
    return parser, run


def _add_quorum(quorum: argparse.ArgumentParser) -> None:
    deeds = quorum.add_subparsers(dest="deed", metavar="status|admit|init", required=True)

    def add(name: str, help: str, description: str) -> argparse.ArgumentParser:
        deed = deeds.add_parser(name, help=help, description=description, formatter_class=Formatter)
        _add_everywhere(deed, url=argparse.SUPPRESS, json=argparse.SUPPRESS)
        return deed

    status = add("status", "show which nodes vote, and whether locks can be had", STATUS)
    status.add_argument("name", nargs="?", metavar="NAME")
    admit = add("admit", "give a node its vote before its quarantine is over", ADMIT)
    admit.add_argument("node", metavar="NODE", help="as status shows it: 127.0.0.1:6379")
    init = add("init", "let all nodes begin anew", INIT)
    init.add_argument("--missing", action="store_true", help="though some cannot be reached")
    for deed in (admit, init):
        deed.add_argument("--yes", action="store_true", help="nothing is held any more: do it")


def _add_everywhere(parser: argparse.ArgumentParser, url: str | None, json: str | bool) -> None:
    parser.add_argument("--url", default=url, help="the store, as sqlite:////path/to/locks.db")
    parser.add_argument("--json", action="store_true", default=json, help="output for programs")


def _add_run(run: argparse.ArgumentParser) -> None:
    run.usage = (
        "interlock run [-n | -w SECS] [-s | --permits K --capacity N] [--ttl S] [--min-hold S]\n"
        "                     [--grace S] [-E CODE] [--url URL] [--json] NAME -- CMD..."
    )
    waiting = run.add_mutually_exclusive_group()
    waiting.add_argument(
        "-n", "--nonblock", action="store_true", help="do not wait: exit with 75 if it is taken"
    )
    waiting.add_argument("-w", "--timeout", type=seconds, metavar="SECS", help="wait at most this long")
    run.add_argument(
        "-s", "--shared", action="store_true", help="share it with others that say -s (a read lock)"
    )
    run.add_argument("--permits", type=whole(1), metavar="K", help="how many permits to take (1)")
    run.add_argument("--capacity", type=whole(1), metavar="N", help="a semaphore of so many permits in all")
    run.add_argument(
        "--ttl", type=seconds, default=30.0, metavar="S", help="how long the lease lives unrenewed (30)"
    )
    run.add_argument(
        "--min-hold", type=seconds, metavar="S", help="keep it at least this long, also after CMD ended"
    )
    run.add_argument(
        "--grace",
        type=seconds,
        metavar="S",
        help="between SIGTERM and SIGKILL when the lease is lost; at most half of the ttl (a quarter, at most 10)",
    )
    run.add_argument(
        "-E", "--conflict-exit-code", type=whole(0, 255), default=None, metavar="CODE", help="instead of 75"
    )
    run.add_argument("name", metavar="NAME")
    run.add_argument("misplaced", nargs="*", help=argparse.SUPPRESS)


def seconds(text: str) -> float:
    """A duration of 0 or more; what is too short or too long is the store's to say."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """A whole number within bounds."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least or (most is not None and value > most):
            bound = f"of at least {least}" if most is None else f"between {least} and {most}"
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {bound}")
        return value

    return number
