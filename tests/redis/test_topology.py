"""The slot map is read from the replies of nodes, and an outdated map is not believed once a later one is known."""

from __future__ import annotations

from typing import Any

import pytest

from interlock._core.drive import drive
from interlock.backends.kit.runtime import ThreadRuntime
from interlock.backends.redis.cluster import topology as topology_module
from interlock.backends.redis.cluster.router import refused
from interlock.backends.redis.cluster.slots import read_map, redirected_to, slot_of
from interlock.backends.redis.cluster.topology import Topology
from interlock.backends.redis.wire.keys import Keys, slot
from interlock.backends.redis.wire.packing import claim_request, renew_request
from interlock.backends.redis.wire.resp import ErrorReply, command
from interlock.backends.redis.wire.scripts import CLAIM, RENEW
from interlock.errors import StoreUnavailable, StoreUnfit
from interlock.model import Claim, Renewal
from tests.redis.topology import LAST, SERVER, World, entry, line


class TestReading:
    def test_every_slot_has_the_master_of_its_range(self) -> None:
        slots = [entry(0, 99, (b"a", 1, "A"), (b"b", 2, "B")), entry(200, LAST, (b"c", 3, "C"))]
        read = read_map(slots, b"", ("asked", 9))
        assert [read.node(n) for n in (0, 99, 100, 200, LAST)] == [
            *(("a", 1), ("a", 1)),
            *(None, ("c", 3), ("c", 3)),
        ]
        assert set(read.nodes) == {("a", 1), ("b", 2), ("c", 3)}

    @pytest.mark.parametrize("host", [None, b"", b"?"])
    def test_a_node_that_does_not_name_itself_is_where_it_was_asked(self, host: Any) -> None:
        read = read_map([entry(0, LAST, (host, 7, "A"))], b"", ("asked", 9))
        assert read.node(0) == ("asked", 7)

    def test_replicas_are_counted_dead_or_alive_and_the_latest_epoch_is_found(self) -> None:
        nodes = "\n".join(
            [
                line("A", "myself,master", "-", 3),
                line("B", "slave,fail", "A", 3),
                line("D", "slave", "A", 3),
                line("E", "handshake", "-", 0),
                line("C", "master", "-", 8),
                "",
            ]
        )
        slots = [entry(0, 99, (b"a", 1, "A"), (b"d", 2, "D")), entry(100, LAST, (b"c", 3, "C"))]
        read = read_map(slots, nodes.encode(), ("asked", 9))
        assert read.epoch == 8
        assert {master.id: master.replicas for master in read.masters} == {"A": 2, "C": 0}

    def test_where_nodes_are_reached_may_be_another_place(self) -> None:
        def remap(place: tuple[str, int]) -> tuple[str, int]:
            return "proxy", place[1] + 1000

        assert read_map([entry(0, LAST, (b"a", 1, "A"))], b"", ("x", 9), remap).node(5) == ("proxy", 1001)
        assert redirected_to("MOVED 5 a:1", ("x", 9), remap) == ("proxy", 1001)

    @pytest.mark.parametrize(
        ("words", "place"),
        [
            ("MOVED 3999 127.0.0.1:6381", ("127.0.0.1", 6381)),
            ("ASK 3999 :6381", ("asked", 6381)),
            ("MOVED 3999 ::1:6381", ("::1", 6381)),
        ],
    )
    def test_a_redirection_names_a_node(self, words: str, place: tuple[str, int]) -> None:
        assert redirected_to(words, ("asked", 9)) == place

    @pytest.mark.parametrize("name", ["x", "a{b}c", "odd}", "é\r\n$3\r\nabc"])
    def test_a_request_is_for_the_slot_of_its_first_key(self, name: str) -> None:
        keys = Keys("p:")
        claimed = claim_request(keys, Claim(name, "id", 1.0), b"channel")
        renewed = renew_request(keys, [Renewal(name, "id", 1.0)] * 30, b"channel")
        renew = RENEW.call(120, 121)
        wait = command(b"WAIT", b"1", b"100")
        for request in (CLAIM.by_hash + claimed, CLAIM.with_source + claimed, CLAIM.by_hash + claimed + wait):
            assert slot_of(request) == slot(keys.holder(name))
        for request in (renew.by_hash + renewed, renew.with_source + renewed):
            assert slot_of(request) == slot(keys.holder(name))
        assert slot_of(command(b"GET", keys.register(name))) == slot(keys.register(name))

    @pytest.mark.parametrize(
        ("text", "code"),
        [
            ("MOVED 1 a:1", "MOVED"),
            ("ASK 1 a:1", "ASK"),
            ("TRYAGAIN Multiple keys request", "TRYAGAIN"),
            ("CLUSTERDOWN Hash slot not served", "CLUSTERDOWN"),
            ("ERR Error running script: @user_script: READONLY You can't write", "READONLY"),
            ("NOSCRIPT No matching script", ""),
            ("WRONGTYPE Operation", ""),
        ],
    )
    def test_what_was_not_done_here_may_be_asked_elsewhere(self, text: str, code: str) -> None:
        assert refused(ErrorReply(text)) == code
        assert refused(7) == ""


class Clock:
    """Never waits."""

    def now(self) -> float:
        return 0.0


OLD = [entry(0, LAST, (b"h", 1, "A"), (b"h", 2, "B"), (b"h", 3, "C"))]
NEW = [entry(0, LAST, (b"h", 2, "B"), (b"h", 3, "C"))]


class TestTheEpoch:
    def topology(self, *ports: int) -> tuple[Topology, World]:
        topology, world = Topology(SERVER, [("h", port) for port in ports]), World()
        self.told: list[str] = []
        topology.on_change = lambda: self.told.append("change")
        return topology, world

    def look(self, topology: Topology, world: World, place: tuple[str, int] | None = None) -> Any:
        world.asked.clear()
        runtime: Any = ThreadRuntime(Clock().now)
        drive(topology.refresh(world, runtime, place, 1.0))
        assert world.open == 0
        assert topology.map is not None
        return topology.map.node(0)

    def test_a_failover_is_a_change_and_the_first_map_is_none(self) -> None:
        topology, world = self.topology(1)
        world.says = {1: (OLD, 3), 2: (NEW, 4)}
        assert self.look(topology, world) == ("h", 1)
        assert not self.told
        topology.suspect(("h", 1), ("h", 2))
        assert self.look(topology, world, ("h", 1)) == ("h", 2)
        assert world.asked == [2], "who was named knows best"
        assert self.told == ["change"]

    def test_slots_that_move_between_masters_are_no_failover(self) -> None:
        topology, world = self.topology(1)
        world.says = {1: ([entry(0, 9, (b"h", 1, "A")), entry(10, LAST, (b"h", 2, "B"))], 3)}
        self.look(topology, world)
        world.says = {1: ([entry(0, 8, (b"h", 1, "A")), entry(9, LAST, (b"h", 2, "B"))], 4)}
        self.look(topology, world)
        assert not self.told

    def test_the_old_master_is_not_followed_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        topology, world = self.topology(1)
        world.says = {2: (NEW, 4), 1: (NEW, 4)}
        assert self.look(topology, world) == ("h", 2)
        world.says = {1: (OLD, 3)}
        with pytest.raises(StoreUnavailable, match="no node tells"):
            self.look(topology, world)
        assert topology.map is not None
        assert topology.map.node(0) == ("h", 2)
        monkeypatch.setattr(topology_module, "OUTDATED_S", 0.0)  # much later: the Cluster was set up anew
        assert self.look(topology, world) == ("h", 1)

    def test_one_that_knows_more_is_asked_after_one_that_is_behind(self) -> None:
        topology, world = self.topology(1, 2)
        world.says = {1: (NEW, 4), 2: (NEW, 4), 3: (NEW, 4)}
        self.look(topology, world)
        world.says = {1: (OLD, 3), 2: (OLD, 3), 3: (NEW, 5)}
        assert self.look(topology, world) == ("h", 2)
        assert 3 in world.asked

    def test_whoever_is_silent_is_asked_last(self) -> None:
        topology, world = self.topology(1)
        world.says = {1: (OLD, 3), 3: (OLD, 3)}
        self.look(topology, world)
        for _ in range(8):
            topology.suspect(("h", 2))
            topology.suspect(("h", 1))
            self.look(topology, world, ("h", 1))
            assert world.asked == [3]

    def test_it_is_asked_last_the_next_time_as_well(self) -> None:
        topology, world = self.topology(1)
        world.says = {1: (OLD, 3), 2: (OLD, 3), 3: (OLD, 3)}
        self.look(topology, world)
        topology.suspect(("h", 1))
        self.look(topology, world, ("h", 1))
        self.look(topology, world)
        assert world.asked == [2]

    def test_one_that_belongs_to_nobody_is_not_believed(self) -> None:
        topology, world = self.topology(1, 2)
        world.says = {1: ([], 0), 2: (OLD, 3)}
        assert self.look(topology, world) == ("h", 1)

    def test_what_all_refuse_is_said_as_it_is(self) -> None:
        topology, world = self.topology(1, 2)
        world.says = {1: StoreUnfit("wants a password"), 2: StoreUnfit("wants a password")}
        with pytest.raises(StoreUnfit, match="wants a password"):
            self.look(topology, world)
        world.says = {1: StoreUnfit("wants a password")}
        with pytest.raises(StoreUnavailable, match="wants a password; 2 is not there"):
            self.look(topology, world)

    def test_another_memory_at_the_same_place_is_a_change(self) -> None:
        topology, _ = self.topology(1)
        topology.connected_to(("h", 1), b"first")
        topology.connected_to(("h", 1), b"first")
        topology.connected_to(("h", 2), b"other")
        assert not self.told
        topology.connected_to(("h", 1), b"restarted empty")
        assert self.told == ["change"]
