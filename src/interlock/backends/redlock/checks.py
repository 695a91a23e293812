"""Examines the nodes of a quorum: whether they are independent, remember, and have clocks that agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from interlock._support.wording import duration
from interlock.backends.kit.examining import Examiner
from interlock.backends.redis import checks
from interlock.backends.redis.address import Address
from interlock.backends.redis.transport.handshake import Handshake
from interlock.model import Finding

if TYPE_CHECKING:
    from interlock.backends.redlock.algorithm.beginning import NodeState
    from interlock.backends.redlock.store import RedlockStore

APART_S = 1.0  # seconds by which clocks may differ before it is worth a note


async def examine_nodes(
    addresses: Sequence[Address], handshake: Handshake, store: RedlockStore, examiner: Examiner
) -> None:
    """Ask each node of itself, on a connection of its own, and what it remembers of the quorum."""
    found: list[checks.Facts] = []
    for address in addresses:
        facts = await checks.read_facts(
            examiner, handshake, address, "redlock-independence", server=address.label
        )
        if facts is not None:
            found.append(facts)
    if not found:
        return
    examiner.extend([*independence(found, len(addresses)), *clocks(found)])
    for facts in found:
        for one in (*checks.eviction(facts), *checks.memory(facts)):
            examiner.add(one.id, one.severity, one.text, one.remedy, facts.label)
    states = await examiner.answer(lambda timeout: store.status(), "redlock-memory")
    if states is not None:
        examiner.extend(list(memory(states)))
    _expect(found, examiner)


# -- the checks: pure ----------------------------------------------------------------------------


def independence(found: Sequence[checks.Facts], named: int) -> Iterator[Finding]:
    """redlock-independence: nodes that fail together, or are one, are no quorum."""
    runs = [facts.info.get("run_id", "") for facts in found]
    sound = True
    if len(set(runs)) < len(runs):
        sound = False
        twice = [facts.label for facts in found if runs.count(facts.info.get("run_id", "")) > 1]
        told = f"{' and '.join(twice)} are one server, so a majority of them means nothing"
        yield Finding("redlock-independence", "danger", told, "name each server once")
    for facts in found:
        if facts.is_replica:
            sound = False
            told = "the node is a replica: it has no vote of its own"
            yield Finding("redlock-independence", "danger", told, "REPLICAOF NO ONE", facts.label)
        elif facts.number("connected_slaves"):
            sound = False
            told = (
                "replicas follow the node: one that took over would have no vote until its quarantine is over"
            )
            yield Finding(
                "redlock-independence", "note", told, "no replicas for nodes of a quorum", facts.label
            )
    hosts = {facts.label.rpartition(":")[0] for facts in found}
    if len(hosts) < len(found):
        sound = False
        told = (
            f"{len(found)} nodes run on {len(hosts)} host{'s' if len(hosts) > 1 else ''}: they fail together"
        )
        yield Finding("redlock-independence", "warning", told, "a machine, and a power supply, for each node")
    if named % 2 == 0:
        sound = False
        told = f"{named} nodes: as many may fail as of {named - 1}, {(named - 1) // 2}"
        yield Finding("redlock-independence", "note", told, "an odd number of nodes")
    if sound:
        yield Finding("redlock-independence", "good", f"{len(found)} independent servers")


def clocks(found: Sequence[checks.Facts]) -> Iterator[Finding]:
    """redlock-clocks: a node whose clock jumps does not count until a ttl has passed."""
    offsets = {facts.label: facts.offsets[-1] for facts in found if facts.offsets}
    jumped = [
        facts.label
        for facts in found
        if facts.offsets and max(facts.offsets) - min(facts.offsets) > checks.JUMP_S
    ]
    apart = max(offsets.values()) - min(offsets.values()) if offsets else 0.0
    if jumped:
        told = f"the clock of {' and '.join(jumped)} moved while we looked: its votes do not count for a ttl"
        yield Finding("redlock-clocks", "warning", told, "let chrony or ntpd slew clocks, never step them")
    elif apart > APART_S:
        told = (
            f"the clocks of the nodes are {duration(apart)} apart; the difference does no harm, a jump would"
        )
        yield Finding("redlock-clocks", "note", told, "set them right one at a time, a ttl apart")
    else:
        yield Finding("redlock-clocks", "good", "the clocks of the nodes agree")


def memory(states: Sequence[NodeState]) -> Iterator[Finding]:
    """redlock-memory: nodes that lost their memory have no vote for a while."""
    voting, beginning = sum(state.votes for state in states), all(not state.has_begun for state in states)
    majority = len(states) // 2 + 1
    silent = [state for state in states if not state.votes]
    names = ", ".join(f"{state.label} ({state.state})" for state in silent)
    if beginning:
        yield Finding("redlock-memory", "good", "no node was used yet: they begin with the first lock")
    elif voting < majority:
        told = f"{voting} of {len(states)} nodes vote, and {majority} are needed: nobody gets a lock; {names}"
        yield Finding("redlock-memory", "danger", told, "interlock quorum status says what to do")
    elif silent:
        told = f"{voting} of {len(states)} nodes vote; {names}"
        yield Finding("redlock-memory", "note", told, "interlock quorum status says for how long")
    else:
        yield Finding("redlock-memory", "good", f"all {len(states)} nodes vote")


def _expect(found: Sequence[checks.Facts], examiner: Examiner) -> None:
    evicts = any(
        facts.number("maxmemory") and facts.info.get("maxmemory_policy") != "noeviction" for facts in found
    )
    examiner.expect("a minority of nodes dies", "yes", "yes", "not at all")
    examiner.expect("most nodes die", "yes", "yes", "until a majority is back, and past its quarantine")
    examiner.expect("the power fails everywhere", "yes", "yes", "until an operator says that nothing is held")
    examiner.expect("the network is cut", "yes", "yes", "the side without a majority, until it heals")
    examiner.expect("one node runs out of memory", "yes", "no" if evicts else "yes", "not at all")
    examiner.expect("the clock of a node jumps forward", "yes", "no", "not at all")
    examiner.expect("an operator flushes a minority", "yes", "yes", "not at all")
