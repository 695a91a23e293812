"""`ls`, `inspect`, `evict`, `version`: for people and, with --json, for programs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

import pytest

import interlock
from tests.cli.program import Program, until
from tests.patience import PATIENCE

STANDING = {
    *("id", "state", "token", "permits", "age", "lapses_in", "note"),
    *("foreign", "host", "pid", "thread", "site"),
}


@pytest.fixture
def client(program: Program) -> Iterator[interlock.Client]:
    with interlock.connect(program.url) as client:
        yield client


class TestLs:
    def test_shows_who_holds_what(self, program: Program, client: interlock.Client) -> None:
        with client.lock("report:daily") as lease, client.semaphore("pool", 3):
            lines = program.call("ls").stdout.splitlines()
        assert [line.split()[0] for line in lines] == ["pool", "report:daily"]
        assert "  1 of 3  held " in lines[0]
        assert "  lock " in lines[1]
        assert f" pid {os.getpid()} MainThread (cli/test_inspection.py:" in lines[1]
        assert f"  {lease.token}" in lines[1]

    def test_counts_those_who_wait(self, program: Program) -> None:
        program.hold("job")
        program.start("run", "job", "--", "true")
        until(lambda: program.queue("job")["waiters"])
        assert "1 waiting" in program.call("ls").stdout

    def test_aligns_its_columns(self, program: Program, client: interlock.Client) -> None:
        with client.lock("a"), client.lock("日本"), client.lock("a longer name"):
            lines = program.call("ls").stdout.splitlines()
        assert len({line.replace("日本", "xxxx").index("  held ") for line in lines}) == 1

    def test_an_election_is_listed_as_one(self, program: Program, client: interlock.Client) -> None:
        assert client.election("leader").campaign("10.0.0.7:80")
        assert "  election  held " in program.call("ls").stdout
        assert program.call("inspect", "leader").stdout.startswith("leader (election)\n")
        assert program.inspected("leader")["kind"] == "election"

    def test_a_min_hold_shows_that_it_lingers_and_no_holder(self, program: Program) -> None:
        assert program.call("run", "--min-hold", "10m", "job", "--", "true").returncode == 0
        line = program.call("ls").stdout
        assert "  lock  free in 9 min " in line
        assert "  nobody, released by " in line
        assert "held" not in line
        assert "  nobody, released by " in program.call("inspect", "job").stdout
        assert program.inspected("job")["holders"][0]["state"] == "lingering"
        told = program.call("evict", "job", "--reason", "run it again")
        assert "job: ended the min_hold of " in told.stdout
        assert program.inspected("job")["kind"] == "idle"

    def test_takes_a_prefix(self, program: Program, client: interlock.Client) -> None:
        with client.lock("orders/1"), client.lock("orders/2"), client.lock("users/1"):
            found = json.loads(program.call("ls", "orders/", "--json").stdout)
        assert [queue["resource"] for queue in found] == ["orders/1", "orders/2"]

    def test_an_empty_store_is_an_empty_list(self, program: Program) -> None:
        program.make_store()
        assert program.call("ls").stdout == ""
        assert json.loads(program.call("ls", "--json").stdout) == []

    @pytest.mark.parametrize("words", [(), ("deploy",)])
    def test_nothing_in_a_pipe_names_the_store_for_whoever_started_it(
        self, program: Program, client: interlock.Client, words: tuple[str, ...]
    ) -> None:
        """Most who expect something look into another store; and `ssh host interlock ls` has no terminal."""
        told = program.call("ls", *words)
        assert (told.returncode, told.stdout) == (0, "")
        what = "nothing that begins with deploy" if words else "nothing"
        assert told.stderr == f"interlock: {what} is held or waited for in {program.url}\n"

    def test_a_reader_that_has_gone_is_no_error(self, program: Program, client: interlock.Client) -> None:
        read, write = os.pipe()
        os.close(read)
        with client.lock("job"):
            process = program.start("ls", stdout=write)
            os.close(write)
            assert process.wait(PATIENCE) == 141
        assert process.stderr is not None
        assert process.stderr.read() == ""


class TestInspect:
    def test_shows_holders_and_waiters_in_order(self, program: Program, client: interlock.Client) -> None:
        with client.rwlock("x").write() as lease:
            text = program.call("inspect", "x").stdout
            queue = program.inspected("x")
        assert text.splitlines()[0] == "x (write)"
        assert f"token {lease.token}" in text
        assert re.search(r"  lapses in [123]?\d s  ", text)
        (holder,) = queue["holders"]
        assert set(holder) == STANDING
        assert holder["id"] in text
        assert (holder["pid"], holder["thread"]) == (os.getpid(), "MainThread")
        assert holder["site"].startswith("cli/test_inspection.py:")
        assert queue["waiters"] == []

    def test_an_idle_resource_is_no_error(self, program: Program) -> None:
        program.make_store()
        told = program.call("inspect", "nothing")
        assert (told.returncode, told.stdout) == (0, "nothing: idle; nobody holds it or waits for it\n")
        assert program.inspected("nothing") == {
            "resource": "nothing",
            "capacity": 0,
            "kind": "idle",
            "holders": [],
            "waiters": [],
        }

    def test_a_foreign_note_cannot_draw_on_the_screen(
        self, program: Program, client: interlock.Client
    ) -> None:
        election = client.election("leader")
        assert election.campaign("\x1b[2J\x07evil\r\n\u202etxt")
        text = program.call("inspect", "leader").stdout
        assert "\\x1b[2J\\x07evil\\r\\n\\u202etxt" in text
        assert len(text.splitlines()) == 2
        assert program.inspected("leader")["holders"][0]["note"] == "\x1b[2J\x07evil\r\n\u202etxt"

    def test_a_run_is_known_by_its_program(self, program: Program) -> None:
        holder = program.hold("job")
        (standing,) = program.inspected("job")["holders"]
        assert (standing["pid"], standing["site"], standing["note"]) == (holder.pid, "interlock run", "sh")


class TestEvict:
    def test_says_whom_it_met(self, program: Program, client: interlock.Client) -> None:
        lease = client.lock("job").acquire()
        assert lease
        told = program.call("evict", "job", "--reason", "maintenance")
        assert told.returncode == 0
        assert f"evicted {os.uname().nodename} pid {os.getpid()} " in told.stdout
        with pytest.raises(interlock.LeaseLost, match="maintenance"):
            lease.renew()

    def test_takes_one_claim_by_its_id(self, program: Program, client: interlock.Client) -> None:
        semaphore = client.semaphore("pool", 2)
        semaphore.acquire()
        semaphore.acquire()
        first, second = program.inspected("pool")["holders"]
        told = program.call("evict", "pool", "--id", first["id"], "--reason", "test", "--json")
        document = json.loads(told.stdout)
        assert (document["resource"], document["reason"]) == ("pool", "test")
        assert [standing["id"] for standing in document["evicted"]] == [first["id"]]
        assert [standing["id"] for standing in program.inspected("pool")["holders"]] == [second["id"]]

    def test_wants_a_reason_that_says_something(self, program: Program) -> None:
        program.make_store()
        told = program.call("evict", "job", "--reason", " ")
        assert told.returncode == 64
        assert told.stderr.count("\n") == 1

    def test_says_when_there_was_nobody(self, program: Program) -> None:
        program.make_store()
        told = program.call("evict", "job", "--reason", "test")
        assert told.returncode == 1
        assert "nobody holds it" in told.stderr
        told = program.call("evict", "job", "--reason", "test", "--json")
        assert told.returncode == 1
        assert json.loads(told.stdout)["evicted"] == []


class TestTheStore:
    def test_is_the_url_of_the_option_before_that_of_the_environment(self, program: Program) -> None:
        program.hold("job")
        other = f"sqlite:///{program.folder}/other.db"
        interlock.connect(other).close()
        assert program.call("--url", other, "ls").stdout == ""
        assert program.call("ls", "--url", other).stdout == ""
        assert program.call("ls").stdout.startswith("job")

    def test_errors_are_json_where_json_was_asked_for(self, program: Program) -> None:
        told = program.call("ls", "--json", "--url", "sqlite:////proc/no/locks.db")
        assert told.returncode == 69
        assert told.stdout == ""
        assert json.loads(told.stderr)["code"] == 69


def test_version_is_the_packages(program: Program) -> None:
    assert program.call("version").stdout.startswith(f"interlock {interlock.__version__} ")
    assert json.loads(program.call("version", "--json").stdout)["version"] == interlock.__version__
