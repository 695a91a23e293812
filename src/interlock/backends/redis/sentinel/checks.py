"""Examines a master that sentinels watch: every sentinel, and every server that they know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from interlock._support.record import record
from interlock._support.wording import duration
from interlock.backends.kit.examining import Examiner
from interlock.backends.redis import checks
from interlock.backends.redis.address import Address
from interlock.backends.redis.errors import understood
from interlock.backends.redis.replicated import ReplicasWanted
from interlock.backends.redis.sentinel.discovery import Sentinels
from interlock.backends.redis.sentinel.views import majority
from interlock.backends.redis.transport.handshake import Handshake
from interlock.model import Finding

IDS = ("sentinel-two-masters", "sentinel-placement", "sentinel-down-after")
USUAL_TTL = 30.0  # seconds; a failover that takes longer loses leases of this length
FAILOVER_S = 5.0  # seconds that the election and the switch take beside the waiting for the master


@record
class SentinelFacts:
    """The answers of one sentinel about the master and about those that it knows."""

    label: str
    host: str
    master: tuple[str, int]
    quorum: int
    down_after: float  # seconds
    sentinels: int  # all that it counts, itself included
    others: tuple[str, ...]  # the hosts of the other sentinels
    servers: tuple[tuple[str, int], ...]  # the master and its replicas


async def examine_sentinels(
    route: Sentinels, handshake: Handshake, wanted: ReplicasWanted | None, examiner: Examiner
) -> None:
    """Examine the sentinels that the URL names, then all servers that these know."""
    found: list[SentinelFacts] = []
    for sentinel in route.sentinels():
        facts = await examiner.answer(
            partial(_ask_sentinel, route, handshake, sentinel), "sentinel-placement", server=sentinel.label
        )
        if facts is not None:
            found.append(facts)
    if not found:
        return
    examiner.extend([*placement(found), *down_after(found)])
    servers: list[checks.Facts] = []
    for host, port in sorted({server for facts in found for server in facts.servers}):
        address = route.server_at(host, port)
        facts_of = await checks.read_facts(
            examiner, handshake, address, "sentinel-two-masters", server=address.label
        )
        if facts_of is not None:
            servers.append(facts_of)
    examiner.extend(list(two_masters(servers)))
    count = None
    if wanted is not None:
        count = await examiner.answer(partial(_count, wanted), "redis-replicas")
    for facts_of in servers:
        if not facts_of.is_replica:
            examiner.extend(checks.findings_of(facts_of, count, fails_over=True, several=len(servers) > 1))
    checks.expect(examiner, servers, confirmed=wanted is not None, fails_over=True)


async def _count(wanted: ReplicasWanted, timeout: float) -> int:
    return await wanted(b"", timeout, False)


async def _ask_sentinel(
    route: Sentinels, handshake: Handshake, sentinel: Address, timeout: float
) -> SentinelFacts:
    service = route.service.encode()
    connection = await handshake.connect(sentinel, timeout)
    try:
        replies = await handshake.ask_several(
            sentinel,
            connection,
            timeout,
            (b"SENTINEL", b"MASTER", service),
            (b"SENTINEL", b"SENTINELS", service),
            (b"SENTINEL", b"REPLICAS", service),
        )
    finally:
        await handshake.close(connection)
    return understood(sentinel.label, _facts, sentinel, *replies)


def _facts(sentinel: Address, master: Any, others: Any, replicas: Any) -> SentinelFacts:
    facts, others = _by_name(master), [_by_name(other) for other in others or ()]
    servers = [facts, *(_by_name(replica) for replica in replicas or ())]
    return SentinelFacts(
        sentinel.label,
        sentinel.host,
        _place(facts),
        int(facts.get("quorum", 0)),
        int(facts.get("down-after-milliseconds", 0)) / 1000,
        int(facts.get("num-other-sentinels", 0)) + 1,
        tuple(other.get("ip", "") for other in others),
        tuple(_place(server) for server in servers),
    )


def _by_name(words: Any) -> dict[str, str]:
    """The fields of an entry, which RESP2 sends as a flat list."""
    return {
        name.decode(): value.decode(errors="replace")
        for name, value in zip(words[::2], words[1::2], strict=True)
    }


def _place(facts: dict[str, str]) -> tuple[str, int]:
    return facts["ip"], int(facts["port"])


# -- the checks: pure ----------------------------------------------------------------------------


def two_masters(servers: Sequence[checks.Facts]) -> Iterator[Finding]:
    """sentinel-two-masters: an old master that still runs grants locks to those who reach it."""
    masters = [facts for facts in servers if not facts.is_replica]
    if len(masters) > 1:
        names = ", ".join(facts.label for facts in masters)
        yield Finding(
            "sentinel-two-masters",
            "danger",
            f"{len(masters)} servers call themselves master ({names}): two clients may hold one lock",
            "make the old one a replica of the new one: REPLICAOF host port",
        )
    elif masters:
        histories = {facts.info.get("master_replid", "") for facts in servers}
        if len(histories) > 1:
            yield Finding(
                "sentinel-two-masters",
                "warning",
                f"only {masters[0].label} is a master, but a replica follows another history of it",
                "see INFO replication on each server, and wait until all are in step",
            )
        else:
            yield Finding("sentinel-two-masters", "good", f"one server is master: {masters[0].label}")
    else:
        yield Finding(
            "sentinel-two-masters", "danger", "no server that answers is a master: nobody gets a lock"
        )


def placement(found: Sequence[SentinelFacts]) -> Iterator[Finding]:
    """sentinel-placement: too few sentinels, or all on one host, cannot fail over."""
    count, quorum = max(facts.sentinels for facts in found), max(facts.quorum for facts in found)
    hosts = {host for facts in found for host in (*facts.others, facts.host)}
    named = {facts.master for facts in found}
    mend = "run three or five sentinels, each on a machine of its own, with a quorum of a majority"
    if len(named) > 1:
        said = " and ".join(sorted(f"{host}:{port}" for host, port in named))
        yield Finding(
            "sentinel-placement",
            "danger",
            f"the sentinels do not agree on the master: {said}",
            "wait for the end of the failover, or of the cut",
        )
    if count < 3:
        yield Finding(
            "sentinel-placement",
            "warning",
            f"there {'is 1 sentinel' if count == 1 else f'are {count} sentinels'}: when one machine is gone, "
            "no majority is left, nothing fails over, and all locks are lost",
            mend,
        )
    elif quorum < majority(count):
        yield Finding(
            "sentinel-placement",
            "warning",
            f"the quorum is {quorum} of {count} sentinels: a minority may call a living master dead",
            f"SENTINEL SET service quorum {majority(count)}, on each sentinel",
        )
    if len(hosts) == 1 and count > 1:
        yield Finding(
            "sentinel-placement", "warning", f"all {count} sentinels run on one host ({hosts.pop()})", mend
        )
    elif count >= 3 and quorum >= majority(count) and len(named) == 1:
        yield Finding("sentinel-placement", "good", f"{count} sentinels on {len(hosts)} hosts watch it")


def down_after(found: Sequence[SentinelFacts]) -> Iterator[Finding]:
    """sentinel-down-after: a failover that takes longer than the ttl loses all leases."""
    longest = max(facts.down_after for facts in found)
    takes = longest + FAILOVER_S
    if takes > USUAL_TTL:
        yield Finding(
            "sentinel-down-after",
            "warning",
            f"a master counts as dead after {duration(longest)}, so a failover takes about "
            f"{duration(takes)}: leases with a shorter ttl are lost in it",
            "SENTINEL SET service down-after-milliseconds 5000, or a longer ttl",
        )
    else:
        yield Finding(
            "sentinel-down-after",
            "good",
            f"a failover takes about {duration(takes)}; choose a ttl that is longer",
        )
