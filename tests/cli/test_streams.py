"""Standard streams that are closed or full: one sentence and a code, never a traceback."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.cli.program import Program

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")

CLOSED = "interlock: standard output cannot be written (it is closed)\n"
FULL = "interlock: standard output cannot be written (No space left on device)\n"


def shell(program: Program, redirections: str, *words: str) -> subprocess.CompletedProcess[str]:
    """`interlock words... redirections`, as a shell runs it."""
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirections}', "sh", *program.argv(*words)],
        env=program.environment(),
        cwd=program.folder,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(("redirections", "told"), [(">&-", CLOSED), (">/dev/full", FULL)])
@pytest.mark.parametrize(
    "words", [["version"], ["inspect", "job"], ["ls", "--json"], ["top", "--once"]], ids=" ".join
)
def test_output_that_cannot_be_written_exits_with_74_and_one_sentence(
    program: Program, words: list[str], redirections: str, told: str
) -> None:
    program.make_store()
    done = shell(program, redirections, *words)
    assert done.returncode == 74
    if "--json" not in words:
        assert done.stderr == told
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("redirections", [">&-", ">/dev/full"])
def test_help_that_cannot_be_written_is_no_traceback(program: Program, redirections: str) -> None:
    assert "Traceback" not in shell(program, redirections, "--help").stderr


@pytest.mark.parametrize("redirections", ["2>&-", "2>/dev/full", "<&-", "<&- 2>&-"])
@pytest.mark.parametrize("words", [["version"], ["run", "--json", "job", "--", "echo", "hi"]], ids=" ".join)
def test_errors_that_cannot_be_written_change_nothing(
    program: Program, words: list[str], redirections: str
) -> None:
    done = shell(program, redirections, *words)
    assert done.returncode == 0
    assert done.stdout.count("\n") == 1


def test_a_wrong_word_exits_with_64_though_nobody_can_be_told(program: Program) -> None:
    for redirections in ("2>&-", "2>/dev/full", ">&- 2>&-"):
        assert shell(program, redirections, "frobnicate").returncode == 64


@pytest.mark.parametrize("redirections", [">&-", "<&- >&- 2>&-"])
def test_a_run_needs_no_output_of_its_own(program: Program, redirections: str) -> None:
    done = shell(program, redirections, "run", "job", "--", "sh", "-c", "exit 37")
    assert done.returncode == 37
    assert done.stderr == ""


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
class TestAClosedStream:
    def test_is_closed_for_the_command_too(self, program: Program) -> None:
        done = shell(program, ">&-", "run", "job", "--", "sh", "-c", "test ! -e /proc/$$/fd/1")
        assert done.returncode == 0, done.stderr

    def test_never_has_its_number_given_to_a_file_of_ours(self, program: Program) -> None:
        """What anybody writes to the stream would go into it: a pipe of orders, or a lock file."""
        script = "readlink /proc/$PPID/fd/0 /proc/$PPID/fd/1 /proc/$PPID/fd/2 > found"
        done = shell(program, "<&- >&- 2>&-", "run", "job", "--", "sh", "-c", script)
        assert done.returncode == 0
        assert (program.folder / "found").read_text().split() == ["/dev/null"] * 3
