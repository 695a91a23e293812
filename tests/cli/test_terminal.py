"""On a terminal: Ctrl-C, Ctrl-Z and hanging up work as without the wrapper; colours are for eyes only."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator

import pytest

from interlock._support.record import replaced
from interlock.cli import inspection, table
from interlock.model import Queue, Standing
from interlock.who import Who
from tests.cli.program import Program, alive, stopped, until, written

pytest.importorskip("pty", reason="needs pseudo terminals")

from tests.cli.terminal import Terminal

CTRL_C, CTRL_Z = "\x03", "\x1a"

Open = Callable[..., Terminal]


@pytest.fixture
def open_terminal(program: Program) -> Iterator[Open]:
    opened: list[Terminal] = []

    def open_terminal(*argv: str, **env: str) -> Terminal:
        settings = {**program.environment(), "TERM": "xterm", "NO_COLOR": "", **env}
        opened.append(Terminal(list(argv), settings, str(program.folder)))
        return opened[-1]

    yield open_terminal
    for terminal in opened:
        terminal.close()


class TestRun:
    def test_ctrl_c_reaches_the_command_once(self, program: Program, open_terminal: Open) -> None:
        script = "trap 'echo int' INT; trap 'echo usr; exit 3' USR1; echo ready; while :; do sleep 0.02; done"
        terminal = open_terminal(*program.argv("run", "job", "--", "sh", "-c", script))
        terminal.expect("ready")
        terminal.type(CTRL_C)
        terminal.expect("int")
        terminal.process.send_signal(
            signal.SIGUSR1
        )  # behind it in the same pipe: a second INT would come first
        assert terminal.finish() == 3
        assert terminal.shown.replace("^C", "").split() == ["ready", "int", "usr"]

    def test_ctrl_c_in_the_queue_exits_with_130_and_leaves_nothing_behind(
        self, program: Program, open_terminal: Open
    ) -> None:
        program.hold("job")
        terminal = open_terminal(*program.argv("run", "-q", "job", "--", "true"))
        until(lambda: program.queue("job")["waiters"])
        terminal.type(CTRL_C)
        assert terminal.finish() == 130
        assert terminal.shown.replace("^C", "").strip() == ""
        assert program.queue("job")["waiters"] == []

    def test_the_command_reads_what_is_typed(self, program: Program, open_terminal: Open) -> None:
        script = "read line; echo got $line; test -t 0 && test -t 1 && echo on a terminal"
        terminal = open_terminal(*program.argv("run", "job", "--", "sh", "-c", script))
        terminal.type("something\n")
        assert terminal.finish() == 0
        assert "got something" in terminal.shown
        assert "on a terminal" in terminal.shown

    def test_hanging_up_ends_the_command(self, program: Program, open_terminal: Open) -> None:
        terminal = open_terminal(
            *program.argv("run", "job", "--", "sh", "-c", "echo $$ > pid; exec sleep 60")
        )
        command = int(written(program.folder / "pid")[0])
        terminal.close()
        until(lambda: not alive(command))
        until(lambda: program.queue("job")["kind"] == "idle")

    @pytest.mark.skipif(shutil.which("bash") is None, reason="needs a shell with job control")
    def test_ctrl_z_and_fg_work_as_for_any_job(self, program: Program, open_terminal: Open) -> None:
        terminal = open_terminal("bash", "--norc", "--noediting", "-i", PS1="$ ")
        script = "echo $$ > pid; read line; echo got $line; exit 3"
        words = " ".join(program.argv("run", "job", "--", "sh", "-c", f"'{script}'"))
        terminal.type(words + "\n")
        command = int(written(program.folder / "pid")[0])
        terminal.type(CTRL_Z)
        terminal.expect("Stopped")
        until(lambda: stopped(command))
        terminal.type("fg\n")
        until(lambda: not stopped(command))
        terminal.type("something\n")
        terminal.expect("got something")
        terminal.type("echo code $?\n")
        terminal.expect("code 3")
        terminal.type("exit\n")
        assert terminal.finish() == 0


class TestColours:
    def test_are_for_terminals_only(self, program: Program, open_terminal: Open) -> None:
        program.hold("job")
        terminal = open_terminal(*program.argv("ls"), COLUMNS="200")
        assert terminal.finish() == 0
        assert "RESOURCE" in terminal.shown
        assert "\x1b[32mheld" in terminal.shown
        plain = program.call("ls").stdout
        assert "\x1b" not in plain
        assert "RESOURCE" not in plain

    def test_are_left_out_when_nobody_wants_them(self, program: Program, open_terminal: Open) -> None:
        program.hold("job")
        for setting in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            terminal = open_terminal(*program.argv("ls"), **setting)
            assert terminal.finish() == 0
            assert "\x1b" not in terminal.shown

    def test_a_table_fits_the_terminal(self, program: Program, open_terminal: Open) -> None:
        program.hold("orders/" + "x" * 200 + "/17")
        terminal = open_terminal(*program.argv("ls"), COLUMNS="100", NO_COLOR="1")
        assert terminal.finish() == 0
        lines = terminal.shown.splitlines()
        assert max(map(len, lines)) <= 100
        assert "…" in lines[1]
        assert lines[1].startswith("orders/x")
        assert "/17" in lines[1]


@pytest.mark.parametrize("words", [["ls"], ["inspect", "job"], ["top", "--once"]], ids=" ".join)
def test_an_empty_store_says_so_and_names_itself(
    program: Program, open_terminal: Open, words: list[str]
) -> None:
    program.make_store()
    terminal = open_terminal(*program.argv(*words), COLUMNS="300")
    assert terminal.finish() == 0
    assert f"sqlite:///{program.file}" in terminal.shown
    assert "hold" in terminal.shown or "held" in terminal.shown


class TestLsAt80Columns:
    def test_keeps_the_pid_and_shortens_the_token(self, program: Program, open_terminal: Open) -> None:
        holder = program.hold("orders/2024/customer/4711/invoice-run")
        (standing,) = program.queue("orders/2024/customer/4711/invoice-run")["holders"]
        terminal = open_terminal(*program.argv("ls"), COLUMNS="80", NO_COLOR="1")
        assert terminal.finish() == 0
        heading, line = terminal.shown.splitlines()
        assert len(line) <= 80
        assert f" pid {holder.pid}" in line
        assert str(standing["token"]) not in line
        assert f"…{str(standing['token'])[-7:]}" in line
        assert line.startswith("orders/")
        assert heading.split() == ["RESOURCE", "KIND", "STATE", "HOLDER", "TOKEN", "QUEUE"]

    def test_keeps_the_pid_of_a_host_with_a_long_name(self) -> None:
        host = "ip-10-0-17-244.eu-central-1.compute.internal"
        who = Who(host, 2111111, "Thread-7", "billing/run.py:88").pack()
        standing = Standing("a", 1793000000000001, 1, True, 4000.0, 20.0, "", who)
        others = [replaced(standing, id=id, admitted=False) for id in "bc"]
        rows = [inspection.HEADING, inspection.row(Queue("report:daily", 1, (standing, *others)))]
        for width in (60, 80, 100, 120):
            (_, line) = table.lines(rows, width, inspection.SHORTENED_FIRST)
            assert len(table.GAP.join(line)) <= max(width, 72)
            assert "pid 2111111" in line[inspection.HOLDER]
        (_, line) = table.lines(rows, 200, inspection.SHORTENED_FIRST)
        assert "1793000000000001" in line[inspection.TOKEN]
        assert "Thread-7 (billing/run.py:88)" in line[inspection.HOLDER]


def test_an_empty_list_is_told_to_the_person_and_not_to_the_pipe(
    program: Program, open_terminal: Open
) -> None:
    program.make_store()
    line = " ".join(program.argv("ls", "orders"))
    terminal = open_terminal("sh", "-c", f"{line} | wc -c")
    assert terminal.finish() == 0
    told, count = terminal.shown.split("\r\n")[:2]
    assert told == f"interlock: nothing that begins with orders is held or waited for in {program.url}"
    assert count.strip() == "0"
