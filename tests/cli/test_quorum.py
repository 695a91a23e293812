"""`quorum status`, `admit`, `init`: what an operator sees of the nodes of a quorum, and may decide, on real servers."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest

import interlock
from interlock._core.drive import drive
from interlock.backends.redlock import RedlockStore
from interlock.backends.redlock.algorithm.beginning import NodeState
from interlock.cli import quorum_report
from interlock.testing.servers.redlock import Servers, quorum, say, steady
from tests.cli.program import Program, finished, until

pytestmark = pytest.mark.server

TTL = 20.0  # longer than any of these tests: what it keeps in quarantine stays there


@pytest.fixture
def servers(program: Program) -> Iterator[Servers]:
    """Three servers of this test's own, to break; the command is told of them."""
    with quorum(3) as servers:
        program.url = servers.url()
        yield servers


@pytest.fixture
def five(program: Program) -> Servers:
    """Five servers that nobody breaks, blank under this test's prefix."""
    servers = steady(5)
    program.url = servers.url(f"{uuid4().hex}:")
    return servers


def used(program: Program) -> int:
    """The nodes have granted something; its token."""
    with interlock.connect(program.url, ttl=TTL) as client, client.lock("before") as lease:
        return lease.token


@contextmanager
def store(program: Program) -> Iterator[RedlockStore]:
    with interlock.connect(program.url, ttl=TTL) as client:
        store = client._core.store
        assert isinstance(store, RedlockStore)
        yield store


def states(program: Program) -> list[str]:
    """The state of each node, as the store has it."""
    with store(program) as opened:
        return [node.state for node in drive(opened.status())]


def found_out(program: Program, node: int) -> None:
    """A client has met the node that forgot, and its quarantine has begun."""
    with store(program) as opened:

        def quarantined() -> bool:
            drive(opened.inspect("x"))  # hears all nodes, and so who has no vote
            return drive(opened.status())[node].state == "quarantined"

        until(quarantined)


def status(program: Program, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(program.call("quorum", "status", *words, "--json").stdout)
    return found


def place(servers: Servers, node: int) -> str:
    return f"127.0.0.1:{servers[node].port}"


def cells(told: subprocess.CompletedProcess[str]) -> list[list[str]]:
    """The lines of a table, cut at its gaps."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in told.stdout.splitlines()]


class TestStatus:
    def test_shows_each_node_and_the_verdict(self, program: Program, five: Servers) -> None:
        token = used(program)
        told = program.call("quorum", "status")
        assert told.returncode == 0, told.stderr
        *lines, verdict = cells(told)
        assert [line[:2] for line in lines] == [[place(five, node), "votes"] for node in range(5)]
        assert all(len(run) == 8 and clock.endswith(" ms") for _, _, run, clock, *_ in lines)
        assert sum(line[4:] == [str(token)] for line in lines) >= 3
        assert verdict == ["5 of 5 vote: locks can be had"]

    def test_of_blank_nodes_changes_nothing(self, program: Program, five: Servers) -> None:
        for words in (["x"], []):
            told = program.call("quorum", "status", *words)
            assert told.returncode == 0, told.stderr
            assert [line[1] for line in cells(told)[:5]] == ["blank"] * 5
            assert told.stdout.endswith("all 5 are blank: locks can be had, the first one starts them\n")
            unknown = "x: nobody knows who holds it: 0 of 5 say, 3 are needed"
            assert (unknown in told.stdout.splitlines()) == bool(words)
        prefix = program.url.partition("prefix=")[2]
        assert [say(server, "EXISTS", f"{prefix}\x1fquorum") for server in five.all] == [0] * 5

    def test_says_what_each_node_says_of_a_resource(self, program: Program, five: Servers) -> None:
        prefix = program.url.partition("prefix=")[2]
        with interlock.connect(program.url, ttl=10 * TTL) as client, client.lock("x") as lease:
            for node in (0, 1):
                say(five[node], "DEL", f"{prefix}x")
            say(five[1], "SET", f"{prefix}x", "theirs", "PX", "20000")
            told = program.call("quorum", "status", "x")
            found = status(program, "x")
        says = [line[5] for line in cells(told)[:5]]
        assert says[:2] == ["free", "granted to another program"]
        assert all(said.startswith("granted to ") and f", token {lease.token}" in said for said in says[2:])
        assert told.stdout.splitlines()[5].startswith("x: held ")
        assert found["resource"] == "x"
        assert [node["says"] for node in found["nodes"]] == ["free"] + ["granted"] * 4
        assert [claim["token"] for claim in found["nodes"][4]["claims"]] == [lease.token]
        told = program.call("quorum", "status", "y")
        assert [line[5] for line in cells(told)[:5]] == ["free"] * 5
        assert told.stdout.splitlines()[5] == "y: free; nobody stands on a majority"

    def test_tells_dead_nodes_from_forgetful_ones(self, program: Program, servers: Servers) -> None:
        used(program)
        servers[1].kill()
        told = program.call("quorum", "status", "x")
        assert cells(told)[1] == [place(servers, 1), "Connection refused", "no answer"]
        assert (told.returncode, cells(told)[-1]) == (0, ["2 of 3 vote: locks can be had"])
        servers[1].start()
        assert cells(program.call("quorum", "status"))[1][1] == "lost its memory, or is new"
        found_out(program, 1)
        told = program.call("quorum", "status", "x")
        state, *_, said = cells(told)[1][1:]
        assert state.startswith("quarantined for ")
        assert 10 < int(state.split()[2]) <= TTL * 1.01 + 1
        assert said == "no vote"
        servers[2].kill()
        told = program.call("quorum", "status")
        assert told.returncode == 69
        wanted = f"1 of 3 vote, 2 are needed: no lock can be had; bring back {place(servers, 2)}"
        assert cells(told)[-1] == [wanted]
        found = status(program)
        assert found["able"] is False
        assert [node["state"] for node in found["nodes"]] == ["voting", "quarantined", "unreachable"]

    def test_ends_with_ctrl_c_and_without_a_word(self, program: Program) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and says nothing
            port = silent.getsockname()[1]
            program.url = f"redlock://127.0.0.1:{port},127.0.0.1:1,127.0.0.1:2"
            process = program.start("quorum", "status")
            silent.settimeout(20)
            with silent.accept()[0]:
                process.send_signal(signal.SIGINT)
                assert finished(process) == (130, "", "")


class TestAdmit:
    def test_wants_to_be_told_twice_and_says_what_it_risks(self, program: Program, servers: Servers) -> None:
        token = used(program)
        say(servers[0], "FLUSHALL")
        found_out(program, 0)
        node = place(servers, 0)
        told = program.call("quorum", "admit", node)
        assert (told.returncode, told.stdout) == (64, "")
        assert told.stderr.startswith(f"interlock: {node} is quarantined for ")
        assert "may still be held" in told.stderr
        assert told.stderr.endswith("say --yes\n")
        assert states(program)[0] == "quarantined"
        told = program.call("quorum", "admit", node, "--yes")
        assert told.returncode == 0, told.stderr
        assert told.stdout.startswith(f"{node} votes; it accepts no number up to ")
        assert int(told.stdout.split()[-1]) >= token
        assert states(program)[0] == "voting"
        assert program.call("quorum", "admit", node).stdout == f"{node} has its vote already\n"

    def test_refuses_what_it_cannot_do_in_one_sentence(self, program: Program, servers: Servers) -> None:
        used(program)
        told = program.call("quorum", "admit", "elsewhere:6379", "--yes")
        assert told.returncode == 64
        known = ", ".join(place(servers, node) for node in range(3))
        assert told.stderr == f"interlock: elsewhere:6379 is none of the nodes: {known}\n"
        for node in (0, 1):
            say(servers[node], "FLUSHALL")
        told = program.call("quorum", "admit", place(servers, 0), "--yes")
        assert (told.returncode, "interlock quorum init" in told.stderr) == (69, True)
        servers[0].kill()
        told = program.call("quorum", "admit", place(servers, 0), "--yes", "--json")
        assert told.returncode == 69
        assert json.loads(told.stderr)["message"] == f"{place(servers, 0)}: Connection refused"


class TestInit:
    def test_starts_blank_nodes_for_the_asking(self, program: Program, five: Servers) -> None:
        told = program.call("quorum", "init")
        assert (told.returncode, told.stdout) == (0, "5 of 5 vote: locks can be had\n")
        assert states(program) == ["voting"] * 5
        assert program.call("quorum", "init").returncode == 0

    def test_refuses_used_nodes_until_it_is_told_twice(self, program: Program, servers: Servers) -> None:
        token = used(program)
        for node in (0, 1):
            say(servers[node], "FLUSHALL")
        told = program.call("quorum", "status")
        assert told.returncode == 69
        assert told.stdout.endswith("`interlock quorum init --yes` lets all begin anew\n")
        told = program.call("quorum", "init")
        assert (told.returncode, told.stdout) == (64, "")
        assert told.stderr.startswith(f"interlock: {place(servers, 2)} was used before: ")
        assert states(program) == ["new", "new", "voting"]
        told = program.call("quorum", "init", "--yes")
        assert (told.returncode, told.stdout) == (0, "3 of 3 vote: locks can be had\n")
        assert used(program) > token

    def test_refuses_while_a_node_is_away(self, program: Program, servers: Servers) -> None:
        servers[1].kill()
        told = program.call("quorum", "init", "--yes")
        assert told.returncode == 69
        assert f"({place(servers, 1)}: Connection refused)" in told.stderr
        told = program.call("quorum", "init", "--missing")
        assert (told.returncode, "cannot be reached, and may have been used" in told.stderr) == (64, True)
        assert "voting" not in states(program)
        told = program.call("quorum", "init", "--missing", "--yes")
        assert (told.returncode, told.stdout) == (0, "2 of 3 vote: locks can be had\n")


@pytest.mark.parametrize("url", ["redis://user:secret@127.0.0.1:1/0", "sqlite:///none.db", ""])
def test_what_is_no_quorum_is_refused_in_one_sentence(program: Program, url: str) -> None:
    told = program.call("quorum", "status", INTERLOCK_URL=url, XDG_STATE_HOME=str(program.folder))
    assert (told.returncode, told.stdout) == (64, "")
    assert told.stderr.endswith(" is no quorum; interlock quorum is for redlock://host1,host2,host3\n")
    assert "secret" not in told.stderr
    assert list(program.folder.iterdir()) == []  # asking made no store


# ---- the verdict, without servers --------------------------------------------------------


def node(name: str, state: str, top: int = 7) -> NodeState:
    here = state != "away"
    return NodeState(name, here, state, 1.0, "run", 0.0, top, 0, False)


VERDICTS = {
    "voting voting quarantined": (True, "2 of 3 vote: locks can be had"),
    "voting restarted restarted": (False, "it finds out whether those that restarted lost anything"),
    "restarted restarted restarted": (False, "it finds out whether those that restarted lost anything"),
    "voting new quarantined": (False, "`interlock quorum init --yes` lets all begin anew"),
    "voting quarantined away": (False, "no lock can be had; bring back n2"),
    "away new quarantined new new": (False, "bring back n0, and when nothing is held any more"),
    "voting voting quarantined quarantined": (False, "admit the others when their time has come"),
}


@pytest.mark.parametrize("states", VERDICTS)
def test_the_verdict_says_what_to_do(states: str) -> None:
    able, words = VERDICTS[states]
    found = quorum_report.verdict([node(f"n{n}", state) for n, state in enumerate(states.split())])
    assert found[0] is able
    assert found[1].endswith(words) or words in found[1]


def test_nodes_that_nobody_used_need_no_operator() -> None:
    unused = [node("a", "quarantined", 0), node("b", "quarantined", 0), node("c", "new", 0)]
    assert quorum_report.verdict(unused)[1].endswith(
        "clients that ask admit the others when their time has come"
    )
    assert quorum_report.word(unused[1], unused) == "quarantined for 1 s more"
    assert quorum_report.word(unused[2], unused) == "blank"


def test_a_node_that_voted_was_used_though_it_accepted_no_number() -> None:
    used = [node("a", "voting", 0), node("b", "quarantined", 0), node("c", "new", 0)]
    assert quorum_report.verdict(used)[1].endswith("`interlock quorum init --yes` lets all begin anew")
    assert quorum_report.word(used[2], used) == "lost its memory, or is new"
