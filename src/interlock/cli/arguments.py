"""The command line: what may be said, and what each word means."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from typing import ClassVar, NoReturn

from interlock._support.wording import either, printable
from interlock.cli import exit_codes

OVERVIEW = """\
Distributed locks from the command line. The store is --url, else $INTERLOCK_URL, else an embedded
file that belongs to the user who runs the command: sudo and cron jobs of other users have another
file, so name the store where they must meet."""

RUN = """\
Run CMD while holding the resource NAME: wait for it, renew it while CMD runs, release it
when CMD ends. Contenders are other `interlock run` and programs that use the interlock library.
Durations are seconds, or have a unit: 500ms, 5s, 5m, 1h, 1h30m."""

RUN_MORE = """\
While it waits, one line on standard error says after a second who holds NAME, since when, and how
many claims are ahead; -q keeps it quiet.

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
  64 usage   69 store unreachable or unfit   74 output cannot be written
  75 not acquired (see -E; with --once: 0)   76 lease lost while CMD ran
  126 CMD cannot be executed   127 CMD not found"""

MORE = """\
exit codes: 64 usage   69 store unreachable or unfit   74 output cannot be written; `interlock run --help`
has those of run, and evict exits with 1 if there was nobody to evict."""

WATCH = """\
Print a line whenever somebody comes, is let in, or leaves. Without NAME all resources are followed, by
looking about twice a second: claims that come and go in between are not seen. When the store cannot be
reached for a while, one line says so, and another when it answers again."""

TOP = """\
Show who holds, who waits and how long each lease still lives, and draw it anew twice a second until
Ctrl-C. Where standard output is no terminal, each picture is plain text below the one before."""

EVICT = """\
Take a resource from all who hold it; the next in the queue comes in at once. A victim is told at its next renewal
(an `interlock run` at once) and may go on until then: only what checks its token is safe from it.
A key that another program keeps under this name is left alone unless --foreign is given.
Exits with 1 if there was nobody to evict."""

DOCTOR = """\
Say what this deployment promises: when two holders are possible, what is dangerous and what mends it, and what each
failure would do. It only reads, and every question has a time limit; --probe also takes, renews, hands over and
releases one lock under the name interlock/doctor, and measures that. `unknown`: the server does not tell."""

DOCTOR_MORE = """\
exit codes: 0 nothing at the level of --fail-level   1 something   2 nothing could be looked at"""

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


SQL = """\
Print the SQL that creates the tables and programs of interlock in the database that URL names: for databases in which the
programs that lock may not create anything. Run it once, as the owner. Nothing is connected to."""


LAB = """\
The famous failures of distributed locks, each on real servers that are started for it and ended with it:
first a naive lock, which must fail, then interlock under the same fault. The verdict is read from what the
resource and the store saw."""

LAB_MORE = """\
exit codes: 0 as expected   1 not as expected   2 cannot say   77 something was skipped, with the reason
A ttl lasts one second here, as ten seconds shown ten times faster; --slow gives it ten."""


CHAOS = """\
Start servers of KIND, let clients count under locks, and break servers, network and clients by chance, again and
again. Then everything that happened is judged: no two holders beyond what the store promises, no token twice
or lower, no lost update, progress after every fault, nothing left behind.

KIND is durable, forgetful or mute (one Redis), sentinel, cluster, redlock, etcd, zookeeper, postgresql, mysql
or sqlite."""


MODEL = """\
Search the rules by which nodes of a quorum give tokens, keep leases and begin: all states within small bounds, with
lost, late and repeated messages. What is shipped must be safe, and each broken variant must be found out."""


AS_IN = ", as in: "


class Formatter(argparse.RawDescriptionHelpFormatter):
    """argparse's own, told the width: to ask for it, it would import shutil, 4 ms of everybody's --help."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=24, width=98)


class Parser(argparse.ArgumentParser):
    """argparse, but wrong usage exits with 64 and one sentence: 2 may be the command's own code."""

    incomplete: Callable[[], str] | None = None  # what to say instead of argparse's list of the missing words
    words: ClassVar[list[str]] = []  # what was said: errors repeat it without passwords

    def error(self, message: str) -> NoReturn:
        """Every usage error goes this way, so here passwords are hidden."""
        if self.incomplete is not None and message.startswith("the following arguments are required"):
            message = self.incomplete()
        hint = (
            "" if AS_IN in message or message.endswith("?") else f"; see {self.prog} --help"
        )  # a line to copy is the end of its line
        self.exit(exit_codes.USAGE, f"{self.prog}: {_masked(message, self.words)}{hint}\n")

    def _check_value(self, action: argparse.Action, value: str) -> None:
        """As argparse does, for the names of commands; but it suggests the one that was meant."""
        if action.choices is not None and value not in action.choices:
            from difflib import get_close_matches  # here, not above: it is needed for mistakes only

            near = get_close_matches(value, action.choices, 1)
            meant = f"; did you mean {near[0]}?" if near else f", but {either(action.choices)}"
            self.error(f"there is no command {printable(value)}{meant}")


def parse(argv: list[str]) -> argparse.Namespace:
    """The options; exits as argparse does, with 64 for wrong usage."""
    words, command = argv, None
    if "--" in argv:
        cut = argv.index("--")
        if "run" in argv[:cut]:  # what follows is the command's, however much it looks like ours
            words, command = argv[:cut], argv[cut + 1 :]
    Parser.words = argv
    parser, run = _parsers(command)
    options, unknown = parser.parse_known_args(words)
    if unknown:
        _refuse(unknown, options.command, parser)
    if options.version:
        options.command = "version"
    if options.command is None:
        parser.error(
            "the command is missing: run, ls, inspect, watch, top, evict, doctor, quorum, sql, lab, demo or version"
        )
    _check_name(options, parser)
    if options.command == "run":
        options.argv = command
        _check_words(argv, options, run)
        _check_run(options, run)
    return options


def _refuse(unknown: list[str], command: str | None, parser: argparse.ArgumentParser) -> NoReturn:
    """Name the first option that there is not, or the first word too many."""
    parser.prog = f"interlock {command}" if command else "interlock"
    option = next((word for word in unknown if word.startswith("-")), None)
    if option is not None:
        parser.error(f"there is no option {printable(option.partition('=')[0])}")
    parser.error(f"{printable(unknown[0])} is too much")


def _check_name(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Refuse a URL that stands where a name belongs: the command would look for it in another store, and find
    nothing.

    So is a word that is nearly one, and has a password in it: other users could read that as a name. With
    --url it is a name: any text may be one. For `run` it is, too, unless it has a password in it.
    """
    word = getattr(options, "prefix", None) or getattr(options, "name", None) or ""
    begins = re.match(r"([a-z+]+)(:|//).*@", word, re.IGNORECASE | re.DOTALL)
    if options.url is not None or not (begins or "://" in word):
        return
    from interlock.urls import is_url

    parser.prog = f"interlock {options.command}"
    if is_url(word) and (options.command != "run" or begins):
        parser.error(f"a URL stands after --url{AS_IN}{_line([options.command, '--url', word])}")
    if begins and is_url(f"{begins[1]}://"):
        parser.error(f"a URL stands after --url, and begins with {begins[1].lower()}://")


def _check_words(argv: list[str], options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """See that there is one NAME, then --, then a command; or show the line that was meant."""
    rest: list[str] = options.rest
    if options.argv is None and rest[:1] in (["-h"], ["--help"]):
        parser.print_help()
        parser.exit()
    before = argv[: argv.index("--")] if "--" in argv else argv
    if rest and not rest[0].startswith("-"):
        at = len(before) - len(rest)  # argparse gives what follows NAME, in order
        meant = _line([*argv[:at], "--", *argv[at:]])
        parser.error(f"the command stands after --{AS_IN}{meant}")
    if not options.argv or not options.argv[0]:  # "" is what an unset variable of a shell leaves
        parser.error(f"the command is missing{AS_IN}{_line([*before, '--', 'CMD'])}")


def _line(words: list[str]) -> str:
    """The words as they are typed into a shell, without passwords."""
    from shlex import quote  # argparse has loaded what it needs

    from interlock.urls import redacted, without_password

    shown = ["interlock"]
    for word in words:
        option, equals, value = word.partition("=")
        if shown[-1] == "--url":  # whatever stands there, also if it is mistyped
            word = redacted(word)
        elif option == "--url" and equals:
            word = f"{option}={redacted(value)}"
        shown.append(without_password(word))
    return " ".join(quote(word) for word in shown)


def _masked(message: str, words: list[str]) -> str:
    """The message without the passwords of words that it repeats; a word may be the value of an option."""
    from interlock.urls import without_password

    for word in sorted(words, key=len, reverse=True):
        values = [word, word.partition("=")[2], word[2:]] if word.startswith("-") else [word]
        for value in values:
            hidden = without_password(value)
            if hidden != value:
                for shown in (repr(value)[1:-1], printable(value), value):
                    message = message.replace(shown, hidden)
    return message


def _check_run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    if options.permits is not None and options.capacity is None:
        parser.error("--permits needs --capacity: how many permits there are in all")
    if options.capacity is not None and options.shared:
        parser.error("-s is for a read-write lock, --capacity for a semaphore: use one of them")
    if options.once and options.conflict_exit_code is not None:
        parser.error("--once exits with 0 when it skips, so it takes no -E: use one of them")


def _parsers(command: list[str] | None) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """The parser, and that of `run`; `command` is what follows --, which they do not see, or None without
    --.
    """
    parser = Parser(prog="interlock", description=OVERVIEW, epilog=MORE, formatter_class=Formatter)
    _add_everywhere(parser, url=None, json=False)
    parser.add_argument("--version", action="store_true", help="say which version this is")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def add(name: str, help: str, description: str = "", epilog: str = "") -> Parser:
        made = commands.add_parser(
            name, help=help, description=description or help, epilog=epilog, formatter_class=Formatter
        )
        # A default of the inner parser would undo what stands before the command.
        _add_everywhere(made, url=argparse.SUPPRESS, json=argparse.SUPPRESS)
        return made

    run = add("run", "run a command while holding a resource", RUN, RUN_MORE)
    _add_run(run, command)
    listing = add("ls", "list resources that are held or waited for")
    listing.add_argument("prefix", nargs="?", default="", metavar="PREFIX", help="only names that begin so")
    inspect = add("inspect", "show who holds a resource and who waits, in order")
    inspect.add_argument("name", metavar="NAME")
    watch = add("watch", "follow who comes, holds and leaves", WATCH)
    watch.add_argument("name", nargs="?", metavar="NAME")
    top = add("top", "show holders, queues and time left, live", TOP)
    top.add_argument("prefix", nargs="?", default="", metavar="PREFIX", help="only names that begin so")
    top.add_argument("--once", action="store_true", help="draw one picture and end")
    top.add_argument("--every", type=pause, default=0.5, metavar="SECS", help="how often to look (0.5)")
    _add_evict(add("evict", "take a resource from its holders; each is told why", EVICT))
    _add_doctor(add("doctor", "say what this deployment promises, and what is wrong", DOCTOR, DOCTOR_MORE))
    _add_quorum(add("quorum", "see and mend the nodes of a quorum (redlock://)", QUORUM))
    _add_sql(add("sql", "print the SQL that creates the tables in a database", SQL))
    _add_lab(add("lab", "see the famous failures of locks, on real servers", LAB, LAB_MORE))
    shown = add("demo", "see interlock at work on this machine, in 20 seconds")
    shown.add_argument("--fast", action="store_true", help="too fast to read: for tests")
    add("version", "say which version this is")
    return parser, run


def _add_evict(evict: argparse.ArgumentParser) -> None:
    evict.add_argument("name", metavar="NAME")
    evict.add_argument("--reason", required=True, metavar="TEXT", help="what its holder is told")
    evict.add_argument("--id", metavar="ID", help="this one claim, holder or waiter, as inspect shows it")
    evict.add_argument(
        "--foreign", action="store_true", help="also a key of another program, if it can be a lock"
    )
    evict.add_argument(
        "--no-expiry", action="store_true", help="with --foreign: also one that never lapses by itself"
    )


def _add_doctor(doctor: argparse.ArgumentParser) -> None:
    doctor.add_argument("target", nargs="?", metavar="URL", help="the store; else --url or $INTERLOCK_URL")
    doctor.add_argument("--probe", action="store_true", help="also lock, renew, hand over and measure")
    doctor.add_argument(
        "--fail-level",
        choices=("danger", "warning", "note", "unknown"),
        default="danger",
        metavar="LEVEL",
        help="exit with 1 from this level on: danger (the default), warning, note or unknown",
    )
    doctor.add_argument(
        "--ignore", action="append", default=[], metavar="ID", help="leave a finding out; may be repeated"
    )
    doctor.add_argument(
        "--timeout", type=seconds, default=15.0, metavar="SECS", help="for all questions together (15)"
    )
    doctor.add_argument("--explain", metavar="ID", help="print the page of a finding, and look at nothing")


def _add_sql(sql: argparse.ArgumentParser) -> None:
    sql.add_argument("target", nargs="?", metavar="URL", help="the database; else --url or $INTERLOCK_URL")
    sql.add_argument("--role", metavar="NAME", help="also print the least rights, for this role or user")


def _add_quorum(quorum: argparse.ArgumentParser) -> None:
    actions = quorum.add_subparsers(dest="action", metavar="status|admit|init", required=True)

    def add(name: str, help: str, description: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, help=help, description=description, formatter_class=Formatter)
        _add_everywhere(action, url=argparse.SUPPRESS, json=argparse.SUPPRESS)
        return action

    status = add("status", "show which nodes vote, and whether locks can be had", STATUS)
    status.add_argument("name", nargs="?", metavar="NAME")
    admit = add("admit", "give a node its vote before its quarantine is over", ADMIT)
    admit.add_argument("node", metavar="NODE", help="as status shows it: 127.0.0.1:6379")
    init = add("init", "let all nodes begin anew", INIT)
    init.add_argument("--missing", action="store_true", help="though some cannot be reached")
    for action in (admit, init):
        action.add_argument("--yes", action="store_true", help="nothing is held any more: do it")


def _add_lab(lab: argparse.ArgumentParser) -> None:
    actions = lab.add_subparsers(dest="action", metavar="list|run|all|replay|chaos|model", required=True)

    def add(name: str, help: str, description: str = "", *, speaks: bool = True) -> argparse.ArgumentParser:
        action = actions.add_parser(
            name, help=help, description=description or help, formatter_class=Formatter
        )
        _add_everywhere(action, url=argparse.SUPPRESS, json=argparse.SUPPRESS)
        if speaks:
            action.add_argument("--lang", choices=("en", "zh"), help="English or Chinese; else as $LANG")
        return action

    add("list", "list the scenarios, their servers, and how long they take")
    run = add("run", "play scenarios, and show what happens")
    run.add_argument("names", nargs="+", metavar="NAME", help="as `interlock lab list` shows them")
    every = add("all", "play all scenarios, three at a time")
    replay = add("replay", "judge a history again, as --report has kept it")
    replay.add_argument("file", metavar="FILE", help="a history, lab.jsonl")
    _add_chaos(add("chaos", "break servers by chance while clients work, and judge it", CHAOS, speaks=False))
    model = add("model", "search the protocol of the quorum whole, within small bounds", MODEL, speaks=False)
    model.add_argument("names", nargs="*", metavar="NAME", help="only cases with this in their names")
    model.add_argument("--deep", action="store_true", help="more nodes, higher numbers: minutes")
    for action in (run, every):
        action.add_argument(
            "--only", choices=("naive", "ours"), help="only the naive lock, or only interlock"
        )
        action.add_argument("--slow", action="store_true", help="a ttl lasts ten seconds, as in life")
        action.add_argument("--seed", type=whole(0), default=1, metavar="K", help="for what is random (1)")
    for action in (run, every, replay):
        action.add_argument("--report", metavar="FILE", help="draw it: a page, and beside it the histories")
    for action in (run, replay):
        action.add_argument("--figure", metavar="FILE", help="draw one scenario as a picture, SVG")


def _add_chaos(chaos: argparse.ArgumentParser) -> None:
    synchronizers = ("lock", "rlock", "rwlock", "semaphore", "election", "register")
    chaos.add_argument("kind", metavar="KIND", help="which servers")
    chaos.add_argument("--seconds", type=seconds, default=30.0, metavar="S", help="of faults (30)")
    chaos.add_argument("--seed", type=whole(0), default=1, metavar="N", help="decides about faults (1)")
    chaos.add_argument(
        "--synchronizer", choices=synchronizers, default="lock", help="what the clients use (lock)"
    )
    chaos.add_argument("--report", metavar="FILE", help="draw it: a page, and beside it the history")


def _add_everywhere(parser: argparse.ArgumentParser, url: str | None, json: str | bool) -> None:
    parser.add_argument("--url", default=url, help="the store, as sqlite:////path/to/locks.db")
    parser.add_argument("--json", action="store_true", default=json, help="output for programs")


def _add_run(run: Parser, command: list[str] | None) -> None:
    run.usage = (
        "interlock run [--once | -n | -w SECS] [-s | --permits K --capacity N] [--ttl S] [--min-hold S]\n"
        "                     [--grace S] [-E CODE] [-q | -v] [--url URL] [--json] NAME -- CMD..."
    )
    run.incomplete = lambda: f"NAME is missing{AS_IN}{_line(['run', 'NAME', '--', *(command or ['CMD'])])}"
    _add_waiting(run)
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
        help="between SIGTERM and SIGKILL when the lease is lost; at most half of the ttl (a quarter, at "
        "most 10)",
    )
    run.add_argument("name", metavar="NAME")
    # Without -- the command was forgotten or stands here, options and all: then one sentence shows what was
    # meant.
    nargs = argparse.REMAINDER if command is None else "*"
    run.add_argument("rest", nargs=nargs, default=[], help=argparse.SUPPRESS)


def _add_waiting(run: Parser) -> None:
    """How long to wait, and what is said about it."""
    waiting = run.add_mutually_exclusive_group()
    waiting.add_argument(
        "--once",
        action="store_true",
        help="skip quietly, with code 0, if it is taken: run on one worker of many",
    )
    waiting.add_argument(
        "-n", "--nonblock", action="store_true", help="do not wait: exit with 75 if it is taken"
    )
    waiting.add_argument("-w", "--timeout", type=seconds, metavar="SECS", help="wait at most this long")
    run.add_argument(
        "-E", "--conflict-exit-code", type=whole(0, 255), default=None, metavar="CODE", help="instead of 75"
    )
    saying = run.add_mutually_exclusive_group()
    saying.add_argument(
        "-q", "--quiet", action="store_true", help="do not say that it waits, or that it was not acquired"
    )
    saying.add_argument(
        "-v", "--verbose", action="store_true", help="name the store, and say what happens to the lease"
    )


UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str) -> float:
    """A duration of 0 or more: `5`, `0.5`, `500ms`, `5s`, `5m`, `1h30m`; too short or too long is the
    store's to say.
    """
    value = _duration(text)
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration, such as 5, 500ms, 5s, 5m or 1h30m")
    return value


def _duration(text: str) -> float:
    """The seconds; not a number for what cannot be read."""
    from re import findall, fullmatch  # argparse has loaded it

    try:
        return float(text)  # 1e3 and inf, too
    except ValueError:
        pass
    number = r"([0-9]+\.?[0-9]*|\.[0-9]+)\s*(ms|min|[smhd])\s*"
    if not fullmatch(f"({number})+", text.strip()):
        return math.nan
    return sum(float(count) * UNITS[unit] for count, unit in findall(number, text))


def pause(text: str) -> float:
    """A duration between two pictures: as short as a tenth of a second."""
    value = seconds(text)
    if not 0.1 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 100ms and 1d")
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
