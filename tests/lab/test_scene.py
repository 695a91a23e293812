"""The demo's picture fits 80 x 24 and shows holder, queue, tokens and what was refused."""

from __future__ import annotations

import io

import pytest

from interlock.lab.demo.ledger import Write
from interlock.lab.demo.pace import WATCHED
from interlock.lab.demo.scene import Scene, Sleeper, picture
from interlock.lab.demo.screen import Plain, Terminal, open_screen
from interlock.model import Queue, Standing
from interlock.who import Who

TOKEN = 1794777567771273


def standing(number: int, admitted: bool) -> Standing:
    who = Who("host", 4_000_000 + number, f"worker {number}", "worker.py:1").pack()
    return Standing(str(number), TOKEN + number, 1, admitted, 0.1, 1.5, "", who)


def scene(
    waiting: int = 3, *, sleeper: Sleeper | None = None, refusals: int = 1, text: str = "text " * 90
) -> Scene:
    lock = Queue("ledger", 1, (standing(1, True), *(standing(2 + n, False) for n in range(waiting))))
    writes = [Write(n, "worker 1", TOKEN, n, n + 1, n >= refusals, n, TOKEN) for n in range(9)]
    fates = {"worker 1": "killed"}
    return Scene(
        "act 1", text, 12.3, WATCHED, lock, Queue("printers", 0, ()), fates, sleeper, 9, TOKEN, writes
    )


def shown(scene: Scene) -> list[str]:
    return ["".join(text for _, text in line) for line in picture(scene)]


@pytest.mark.parametrize("waiting", [0, 3, 5, 50])
@pytest.mark.parametrize("sleeper", [None, Sleeper("worker 9", TOKEN)])
def test_every_picture_has_the_same_rows_and_fits_the_screen(waiting: int, sleeper: Sleeper | None) -> None:
    lines = shown(scene(waiting, sleeper=sleeper))
    assert len(lines) == 22
    assert max(map(len, lines)) <= 79


def test_it_names_the_holder_its_fate_and_the_queue_in_order() -> None:
    lines = shown(scene(2))
    holder = next(line for line in lines if "holds" in line)
    assert "worker 1" in holder
    assert "KILLED" in holder
    assert str(TOKEN + 1) in holder
    assert "1.5 s left" in holder
    waits = [line for line in lines if "waits" in line]
    assert [("worker 2" in waits[0], "waits 1" in waits[0]), ("worker 3" in waits[1], "waits 2" in waits[1])]


def test_a_refused_write_stays_in_sight_however_many_follow() -> None:
    lines = shown(scene())
    assert sum("REFUSED" in line for line in lines) == 1
    assert sum("accepted" in line and "->" in line for line in lines) == 3


def test_who_sleeps_past_its_lease_is_shown_as_one_who_believes() -> None:
    sleeper = Sleeper("worker 9", TOKEN - 1)
    assert any("believes worker 9" in line for line in shown(scene(sleeper=sleeper)))
    holding = Sleeper("worker 1", TOKEN + 1)
    assert not any("believes" in line for line in shown(scene(sleeper=holding)))


class Tty(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TERM": "xterm"}, Terminal),
        ({"TERM": "dumb"}, Plain),
        ({}, Plain),
        ({"TERM": "xterm", "NO_COLOR": "1"}, Plain),
    ],
)
def test_a_terminal_gets_pictures_only_where_they_can_be_drawn_and_are_wanted(
    environment: dict[str, str], expected: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert type(open_screen(Tty())) is expected
    assert type(open_screen(io.StringIO())) is Plain


def test_a_picture_is_cut_to_a_small_terminal_and_redrawn_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "10")
    out = Tty()
    terminal = Terminal(out)
    terminal.draw(scene())
    first = len(out.getvalue())
    assert out.getvalue().count("\n") == 9
    terminal.draw(scene())
    assert "\x1b[9A" in out.getvalue()[first:]
    terminal.close()
    assert out.getvalue().endswith("\x1b[?25h")


def test_plain_lines_have_no_escape_codes() -> None:
    out = io.StringIO()
    plain = Plain(out)
    plain.draw(scene())
    plain.tell(1.0, "something happened")
    plain.say([("bold", "done"), ("bad", "!")])
    assert out.getvalue() == "   1.0 s  something happened\ndone!\n"
