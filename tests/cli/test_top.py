"""`interlock top`: the live picture of a store, on a terminal and off it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import interlock
from interlock.cli import screen, table
from interlock.cli.frame import Snapshot, compose
from interlock.model import EVERYTHING, NEVER, Queue, Standing
from interlock.testing.servers.redis import running
from interlock.who import Who
from tests.cli.program import Program, Reader, until
from tests.cli.terminal import Terminal

CTRL_C = "\x03"
Open = Callable[..., Terminal]


@pytest.fixture
def client(program: Program) -> Iterator[interlock.Client]:
    with interlock.connect(program.url) as client:
        yield client


@pytest.fixture
def open_terminal(program: Program) -> Iterator[Open]:
    opened: list[Terminal] = []

    def open_terminal(*argv: str, columns: int = 80, rows: int = 24, **env: str) -> Terminal:
        settings = {**program.environment(), "TERM": "xterm", "NO_COLOR": "1", **env}
        opened.append(Terminal(list(argv), settings, str(program.folder), columns=columns, rows=rows))
        return opened[-1]

    yield open_terminal
    for terminal in opened:
        terminal.close()


class TestOffATerminal:
    def test_once_prints_one_picture(self, program: Program, client: interlock.Client) -> None:
        with client.lock("report:daily") as lease, client.semaphore("pool", 3):
            told = program.call("top", "--once")
        assert (told.returncode, told.stderr) == (0, "")
        lines = told.stdout.splitlines()
        assert lines[0].startswith(f"interlock top  {program.url}")
        assert lines[1] == "2 resources, 2 held, 0 waiting"
        assert lines[3] == "pool  1 of 3"
        assert lines[5] == "report:daily  lock"
        assert f"  holds    {os.uname().nodename} pid {os.getpid()} " in lines[6]
        assert f"…{str(lease.token)[-7:]}" in lines[6]
        assert "\x1b" not in told.stdout

    def test_shows_the_queue_in_order(self, program: Program, client: interlock.Client) -> None:
        program.hold("job")
        first, second = (self.waiter(program) for _ in range(2))
        lines = program.call("top", "--once").stdout.splitlines()
        next_line = next(line for line in lines if line.startswith("  next "))
        second_line = next(line for line in lines if line.startswith("  2 "))
        assert f"pid {first} " in next_line
        assert f"pid {second} " in second_line

    def waiter(self, program: Program) -> int:
        process = program.start("run", "-q", "job", "--", "true")
        until(lambda: process.pid in [one["pid"] for one in program.queue("job")["waiters"]])
        return process.pid

    def test_goes_on_with_plain_pictures_until_it_is_interrupted(self, program: Program) -> None:
        program.hold("job")
        told = Reader(program.start("top", "--every", "100ms"))
        until(lambda: sum(line.startswith("interlock top") for line in told.lines) >= 3)
        assert told.interrupt() == 0
        assert "\x1b" not in "".join(told.lines)

    def test_takes_a_prefix(self, program: Program, client: interlock.Client) -> None:
        with client.lock("orders/1"), client.lock("users/1"):
            told = program.call("top", "--once", "orders/").stdout
        assert "orders/1" in told
        assert "users/1" not in told

    def test_json_is_a_document_a_line(self, program: Program, client: interlock.Client) -> None:
        with client.lock("job") as lease:
            found = json.loads(program.call("top", "--once", "--json").stdout)
        assert found["store"] == program.url
        assert [queue["resource"] for queue in found["resources"]] == ["job"]
        assert found["resources"][0]["holders"][0]["token"] == lease.token

    def test_a_server_that_was_never_reached_ends_it_with_69(self, program: Program) -> None:
        told = program.call("--url", "redis://127.0.0.1:1", "top")
        assert told.returncode == 69
        assert told.stderr.count("\n") == 1


class TestOnATerminal:
    def test_draws_in_place_and_ctrl_c_gives_the_terminal_back(
        self, program: Program, open_terminal: Open
    ) -> None:
        holder = program.hold("job")
        terminal = open_terminal(*program.argv("top", "--every", "100ms"))
        terminal.expect("interlock top", 3)
        assert terminal.shown.startswith(screen.ENTER)
        assert f"pid {holder.pid}" in terminal.shown
        terminal.type(CTRL_C)
        assert terminal.finish() == 0
        assert screen.LEAVE in terminal.shown
        assert "Traceback" not in terminal.shown
        assert terminal.shown.split(screen.LEAVE)[1].strip() in ("", "^C")

    def test_follows_the_size_of_the_terminal(self, program: Program, open_terminal: Open) -> None:
        program.hold("job")
        terminal = open_terminal(*program.argv("top", "--every", "1h"))
        terminal.expect("TOKEN")
        assert frame(terminal.shown)[0] == 80
        terminal.shown = ""
        terminal.resize(40, 10)
        terminal.expect("interlock top")  # at once: it does not look for an hour
        until(lambda: terminal.read(0.1) and "\x1b[J" in terminal.shown)
        wide, lines = frame(terminal.shown)
        assert wide <= 40
        assert lines <= 10

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
    def test_a_signal_that_ends_it_gives_the_terminal_back(
        self, program: Program, open_terminal: Open, number: signal.Signals
    ) -> None:
        program.make_store()
        terminal = open_terminal(*program.argv("top"))
        terminal.expect("interlock top")
        terminal.process.send_signal(number)
        assert terminal.finish() == 128 + number
        assert terminal.shown.endswith(screen.LEAVE)

    def test_a_dumb_terminal_gets_plain_pictures(self, program: Program, open_terminal: Open) -> None:
        program.hold("job")
        terminal = open_terminal(*program.argv("top", "--every", "100ms"), TERM="dumb")
        terminal.expect("interlock top", 2)
        terminal.type(CTRL_C)
        assert terminal.finish() == 0
        assert "\x1b" not in terminal.shown

    @pytest.mark.server
    def test_a_store_that_goes_away_is_told_and_the_last_picture_stays(
        self, program: Program, open_terminal: Open
    ) -> None:
        with running() as server:
            program.url = server.url()
            with interlock.connect(server.url()) as client, client.lock("job"):
                terminal = open_terminal(*program.argv("top", "--every", "100ms"), columns=160)
                terminal.expect("holds")
                server.kill()
                terminal.shown = ""
                terminal.expect("Connection refused")
                terminal.expect("holds")
            server.start()
            terminal.shown = ""
            terminal.expect("nothing is held or waited for")
            terminal.type(CTRL_C)
            assert terminal.finish() == 0


def frame(shown: str) -> tuple[int, int]:
    """Columns and lines of the first whole picture."""
    lines = shown.split("\x1b[H")[1].split("\x1b[J")[0].split("\r\n")
    return max(len(line.replace("\x1b[K", "")) for line in lines), len(lines)


# ---- the picture -------------------------------------------------------------------------


def standing(number: int, admitted: bool, **changes: object) -> Standing:
    who = Who(f"host-{number}", 1000 + number, "MainThread", "billing/run.py:88").pack()
    settings: dict[str, object] = {"id": f"id-{number}", "token": 1793000000000000 + number, "permits": 1}
    settings |= {"age": 41.0, "lapses_in": 20.0, "note": "", "who": who, "admitted": admitted}
    return Standing(**{**settings, **changes})  # type: ignore[arg-type]


def shown(snapshot: Snapshot, width: int = 80, height: int | None = 24, full: float = 0.0) -> list[str]:
    found = compose(snapshot, {"id-0": full}, width, height)
    return ["".join(text for _, text in line).rstrip() for line in found]


def look(*queues: Queue, **changes: object) -> Snapshot:
    settings: dict[str, object] = {"store": "redis://db", "time": "14:03:22", "names": len(queues)}
    return Snapshot(queues=queues, **{**settings, **changes})  # type: ignore[arg-type]


class TestThePicture:
    def test_shows_a_long_queue_in_part_and_counts_the_rest(self) -> None:
        queue = Queue("job", 1, (standing(0, True), *(standing(n, False) for n in range(1, 31))))
        lines = shown(look(queue))
        assert lines[1] == "1 resource, 1 held, 30 waiting"
        assert lines[-1].strip() == "and 20 more wait"

    def test_says_so_where_the_store_was_asked_for_a_part_only(self) -> None:
        queue = Queue("job", 1, (standing(0, True), *(standing(n, False) for n in range(1, 31))))
        lines = shown(look(queue, cut_off=frozenset(["job"])))
        assert lines[1] == "1 resource, 1+ held, 30+ waiting"
        assert lines[-1].strip() == "and more than 20 more wait"

    def test_every_resource_comes_before_long_queues(self) -> None:
        queues = [Queue(f"job-{n}", 1, (standing(0, True), standing(1, False))) for n in range(5)]
        lines = shown(look(*queues), height=18)
        assert [line for line in lines if line.startswith("job-")] == [f"job-{n}  lock" for n in range(5)]
        lines = shown(look(*queues), height=12)
        assert lines[-1] == "and 3 more resources"
        assert len(lines) <= 12

    def test_a_bar_is_full_after_a_renewal_and_shrinks_until_the_next(self) -> None:
        def bar(lapses_in: float) -> int:
            queue = Queue("job", 1, (standing(0, True, lapses_in=lapses_in),))
            return "".join(shown(look(queue), full=30.0)).count("█")

        assert [bar(30.0), bar(15.0), bar(0.5)] == [10, 5, 0]

    def test_a_foreign_key_shows_nothing_of_its_value(self) -> None:
        foreign = standing(0, True, id="s3cret", foreign=True, token=0, age=0.0, lapses_in=NEVER)
        text = "\n".join(shown(look(Queue("session:42", 1, (foreign,)))))
        assert "a key of another program" in text
        assert "never" in text
        assert "s3cret" not in text

    def test_a_claim_that_lingers_has_no_holder(self) -> None:
        text = "\n".join(shown(look(Queue("job", 1, (standing(0, True, id="lingering-7"),))), width=90))
        assert "lingers  nobody, after host-0 pid 1000" in text
        assert "0 held" in text

    @given(
        st.lists(
            st.tuples(
                st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=60),
                st.sampled_from([1, 3, EVERYTHING]),
                st.integers(0, 8),
                st.integers(0, 15),
            ),
            max_size=12,
        ),
        st.integers(20, 200),
        st.integers(5, 60),
    )
    def test_never_leaves_the_screen(
        self, made: list[tuple[str, int, int, int]], width: int, height: int
    ) -> None:
        queues = [
            Queue(name, capacity, tuple(standing(n, n < held) for n in range(held + waiting)))
            for name, capacity, held, waiting in made
            if held + waiting
        ]
        lines = shown(look(*queues, names=len(queues)), width, height)
        assert len(lines) <= height
        assert max(table.columns(line) for line in lines) <= width


def test_letters_stand_for_glyphs_where_there_are_none(program: Program) -> None:
    program.hold("job")
    told = subprocess.run(
        program.argv("top", "--once"),
        env={**program.environment(), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "##########" in told.stdout
    assert "\\u" not in told.stdout
