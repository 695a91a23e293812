"""Which store a command works on: it is named, it is not made by looking, and wrong ones are told in one line."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

import interlock
from tests.cli.program import Program, Reader

LOOKING = pytest.mark.parametrize(
    "words",
    [["ls"], ["inspect", "job"], ["top", "--once"], ["evict", "job", "--reason", "x"]],
    ids=" ".join,
)


class TestAFileThatDoesNotExist:
    @LOOKING
    def test_is_told_and_not_made(self, program: Program, words: list[str]) -> None:
        told = program.call(*words)
        assert told.returncode == 69
        assert told.stdout == ""
        assert told.stderr == (
            f"interlock: {program.file} does not exist, so nothing was ever locked in it; "
            "check --url and $INTERLOCK_URL\n"
        )
        assert list(program.folder.iterdir()) == []

    @pytest.mark.parametrize("words", [["watch"], ["watch", "job"], ["top"]], ids=" ".join)
    def test_is_told_and_waited_for_by_commands_that_go_on(self, program: Program, words: list[str]) -> None:
        looks = Reader(program.start(*words))
        assert looks.process.stderr is not None
        assert looks.process.stderr.readline() == (
            f"interlock: {program.file} does not exist yet, so nothing is locked in it; waiting for it; "
            "check --url and $INTERLOCK_URL\n"
        )
        assert list(program.folder.iterdir()) == []
        with interlock.connect(program.url) as client, client.lock("job"):
            looks.find("job")
            assert looks.interrupt() == 0

    @pytest.mark.parametrize("words", [["watch"], ["top"]], ids=" ".join)
    def test_ctrl_c_ends_the_wait_for_it_without_a_sound(self, program: Program, words: list[str]) -> None:
        looks = Reader(program.start(*words))
        assert looks.process.stderr is not None
        assert "does not exist yet" in looks.process.stderr.readline()
        assert looks.interrupt() == 0
        assert looks.process.stderr.read() == ""

    def test_is_told_to_programs_as_an_event(self, program: Program) -> None:
        told = program.call("ls", "--json")
        assert (told.returncode, told.stdout) == (69, "")
        assert "does not exist" in json.loads(told.stderr)["message"]

    def test_users_of_sudo_and_cron_are_told_that_the_default_file_is_per_user(
        self, program: Program
    ) -> None:
        told = program.call("ls", INTERLOCK_URL="", HOME=str(program.folder), XDG_STATE_HOME="")
        assert told.returncode == 69
        assert f"{program.folder}/.local/state/interlock/locks.db does not exist" in told.stderr
        assert "this is the default file of " in told.stderr
        assert "each user has another one" in told.stderr
        assert list(program.folder.iterdir()) == []

    @pytest.mark.parametrize(
        "url", ["sqlite://host/path", "sqlite:///x?mode=ro", "http://[bad", "sqlite://[bad"]
    )
    def test_a_wrong_url_is_told_as_one(self, program: Program, url: str) -> None:
        told = program.call("ls", "--url", url)
        assert told.returncode == 64, told.stderr
        assert "does not exist" not in told.stderr


class TestSudo:
    def run(self, program: Program, *options: str, **env: str) -> str:
        home = {"HOME": str(program.folder), "XDG_STATE_HOME": ""}
        told = program.call("run", *options, "job", "--", "true", **{**home, **env})
        assert told.returncode == 0, told.stderr
        return told.stderr

    def test_a_default_file_under_sudo_is_told_in_one_line(self, program: Program) -> None:
        told = self.run(program, INTERLOCK_URL="", SUDO_USER="alice")
        assert told.count("\n") == 1
        assert f"{program.folder}/.local/state/interlock/locks.db" in told
        assert "not that of alice" in told
        assert "--url or $INTERLOCK_URL" in told

    def test_a_store_that_was_named_is_not_warned_of(self, program: Program) -> None:
        assert self.run(program, SUDO_USER="alice") == ""

    def test_quiet_and_no_sudo_mean_no_warning(self, program: Program) -> None:
        assert self.run(program, "-q", INTERLOCK_URL="", SUDO_USER="alice") == ""
        assert self.run(program, INTERLOCK_URL="", SUDO_USER="") == ""


def test_verbose_says_whose_the_default_file_is(program: Program) -> None:
    home = {"HOME": str(program.folder), "XDG_STATE_HOME": "", "INTERLOCK_URL": ""}
    told = program.call("run", "-v", "job", "--", "true", **home).stderr.splitlines()[0]
    assert f"the store is sqlite:///{program.folder}/.local/state/interlock/locks.db" in told
    assert "the default file of " in told


@contextmanager
def stranger(greeting: bytes, reply: bytes) -> Iterator[int]:
    """A server that is not Redis: what it says first, and to whatever it is asked."""
    listener = socket.create_server(("127.0.0.1", 0))

    def talk(connection: socket.socket) -> None:
        with connection, suppress(OSError):  # whoever asked may have gone
            connection.sendall(greeting)
            if connection.recv(4096):
                connection.sendall(reply)

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


@pytest.mark.parametrize(
    ("greeting", "reply"),
    [(b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"), (b"SSH-2.0-OpenSSH_9.2\r\n", b"")],
    ids=["http", "ssh"],
)
@pytest.mark.parametrize(
    "words", [["run", "job", "--", "touch", "ran"], ["run", "-n", "job", "--", "true"], ["ls"]]
)
def test_a_server_that_is_not_redis_is_told_in_one_line(
    program: Program, words: list[str], greeting: bytes, reply: bytes
) -> None:
    with stranger(greeting, reply) as port:
        told = program.call("--url", f"redis://:s3cret@127.0.0.1:{port}", *words)
    assert told.returncode == 69
    assert told.stderr.count("\n") == 1, told.stderr
    assert f"127.0.0.1:{port} does not speak the protocol of Redis" in told.stderr
    assert "s3cret" not in told.stderr
    assert not os.path.exists(program.folder / "ran")
