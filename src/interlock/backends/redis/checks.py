"""Examines Redis servers: eviction, memory, persistence, replicas, the wake-up connection and the clock.

What a server answered becomes `Facts`, and each check is a pure function of them. A managed server often
refuses CONFIG; INFO tells the eviction policy all the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from interlock._support.record import record
from interlock._support.wording import duration
from interlock.backends.kit.examining import Examiner
from interlock.backends.redis.address import Address
from interlock.backends.redis.transport.handshake import Handshake, info_lines
from interlock.model import Answer, Finding

CONFIG = (b"appendfsync", b"client-output-buffer-limit", b"min-replicas-to-write")
FULL_SHARE, NEARLY_FULL_SHARE = 0.97, 0.85  # of maxmemory that is used
SMALL_BUFFER_BYTES = 1 << 20  # a burst of grants to one client with many waiters may be larger
SAMPLES = 3
JUMP_S = 0.25  # seconds by which a clock may move between two samples of a second
ASIDE_S = 5.0  # seconds by which two clocks differ before it is worth a note

NOT_AT_ALL = "not at all"
UNTIL_BACK = "until the server is back"


@record
class Facts:
    """The answers of one server about itself; None for a setting that it did not tell."""

    label: str
    info: dict[str, str]
    config: dict[str, str | None]
    offsets: tuple[float, ...] = ()  # seconds by which its clock is ahead of ours, in each sample

    def number(self, name: str) -> int:
        """A number of INFO; 0 if it is missing."""
        text = self.info.get(name, "")
        return int(text) if text.isdigit() else 0

    @property
    def is_replica(self) -> bool:
        return self.info.get("role") == "slave"

    @property
    def appends(self) -> bool:
        return self.info.get("aof_enabled") == "1"

    @property
    def survives_restart(self) -> Answer:
        """Whether everything that was acknowledged is there again after the process has died."""
        return "unknown" if not self.info else "yes" if self.appends else "no"

    @property
    def survives_power_failure(self) -> Answer:
        if self.survives_restart != "yes":
            return self.survives_restart
        fsync = self.config.get("appendfsync")
        return "unknown" if fsync is None else "yes" if fsync == "always" else "no"


OF_INFO = ("redis-eviction", "redis-memory-full", "redis-persistence", "redis-replicas")
ALL = (*OF_INFO, "redis-pubsub-buffer", "redis-clock")
"""The checks of one server."""


async def examine_server(
    address: Address, replicas: int | None, handshake: Handshake, count: object, examiner: Examiner
) -> None:
    """Examine the server at a single address, of whose replicas so many must confirm each grant."""
    facts = await read_facts(examiner, handshake, address, *ALL)
    if facts is not None:
        examiner.extend(findings_of(facts, replicas, fails_over=False))
        fails_over = facts.number("connected_slaves") > 0
        expect(examiner, [facts], confirmed=replicas is not None, fails_over=fails_over)


async def read_facts(
    examiner: Examiner,
    handshake: Handshake,
    address: Address,
    *ids: str,
    server: str = "",
) -> Facts | None:
    """Ask one server, on a connection of its own; None, and `ids` are unknown, if it does not answer."""

    async def ask(timeout: float) -> Facts:
        connection = await handshake.connect(address, timeout)
        try:
            settings = [(b"CONFIG", b"GET", name) for name in CONFIG]
            # TIME first: every user that locks may ask for it, and perhaps for nothing else.
            _, told_info, *replies = await handshake.ask_several(
                address, connection, timeout, (b"TIME",), (b"INFO",), *settings
            )
            offsets = list[float]()
            for _ in range(SAMPLES):
                before = time.time()
                told = await handshake.ask(address, connection, timeout, b"TIME")
                offsets.append(_seconds(told) - (before + time.time()) / 2)
        finally:
            await handshake.close(connection)
        info = {_text(name): _text(value) for name, value in info_lines(told_info or b"").items()}
        config = {name.decode(): _setting(reply) for name, reply in zip(CONFIG, replies, strict=True)}
        return Facts(address.label, info, config, tuple(offsets))

    return await examiner.answer(ask, *ids, server=server)


def _seconds(told: Any) -> float:
    seconds, micros = told
    return int(seconds) + int(micros) / 1e6


def _setting(reply: Any) -> str | None:
    """The value in the reply to CONFIG GET, a name and its value; None if it was refused."""
    match reply:
        case [_, value]:
            return _text(value)
        case _:
            return None


def _text(part: Any) -> str:
    return part.decode(errors="replace") if isinstance(part, bytes) else str(part)


# -- the checks: pure ----------------------------------------------------------------------------


def eviction(facts: Facts) -> Iterator[Finding]:
    """redis-eviction: a policy other than noeviction may delete the key of a held lock."""
    policy, limit = facts.info.get("maxmemory_policy", ""), facts.number("maxmemory")
    mend = "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf"
    if not policy:
        yield Finding("redis-eviction", "unknown", "the server does not tell its eviction policy", mend)
    elif policy == "noeviction":
        yield Finding("redis-eviction", "good", "no key is evicted (maxmemory-policy noeviction)")
    elif limit:
        yield Finding(
            "redis-eviction",
            "danger",
            f"maxmemory-policy is {policy}: when memory is short, the server deletes the keys of held locks",
            mend,
        )
    else:
        yield Finding(
            "redis-eviction",
            "note",
            f"maxmemory-policy is {policy}, which would delete held locks if maxmemory were set; it is not",
            mend,
        )


def memory(facts: Facts) -> Iterator[Finding]:
    """redis-memory-full: a server without free memory refuses to grant locks."""
    limit, used = facts.number("maxmemory"), facts.number("used_memory")
    mend = "raise maxmemory, or find out what fills it: redis-cli --bigkeys"
    if not limit:
        yield Finding("redis-memory-full", "good", "memory has no limit (maxmemory 0)")
        return
    share = used / limit
    text = f"{share:.0%} of maxmemory is in use"
    if share < NEARLY_FULL_SHARE:
        yield Finding("redis-memory-full", "good", text)
    else:
        level: Any = "danger" if share >= FULL_SHARE else "warning"
        more = "when it is full, no lock is granted; renewals and releases still work"
        yield Finding("redis-memory-full", level, f"{text}: {more}", mend)


def persistence(facts: Facts) -> Iterator[Finding]:
    """redis-persistence: a restart that forgets locks lets a second holder in."""
    mend = "CONFIG SET appendonly yes, and the same in redis.conf"
    fsync = facts.config.get("appendfsync")
    if not facts.appends:
        yield Finding(
            "redis-persistence",
            "danger",
            "the server keeps no append-only file: after a restart every held lock is free, and a second "
            "holder gets in; tokens rise all the same",
            mend,
        )
    elif facts.info.get("aof_last_write_status", "ok") != "ok":
        yield Finding(
            "redis-persistence",
            "danger",
            "the last write to the append-only file failed: no lock is granted until the disk takes writes",
            "make room on the disk of the server, and look into its log",
        )
    elif fsync is None:
        yield Finding(
            "redis-persistence",
            "unknown",
            "the server keeps an append-only file, but does not tell how often it reaches the disk "
            "(appendfsync); unless it is always, a power failure loses about the last second",
        )
    elif fsync == "always":
        yield Finding("redis-persistence", "good", "every lock is on the disk before it is granted")
    else:
        yield Finding(
            "redis-persistence",
            "note",
            f"appendfsync is {fsync}: locks survive a crash of the server, but a power failure loses about "
            f"{'the last second' if fsync == 'everysec' else 'what the system has not written yet'}",
            "CONFIG SET appendfsync always, if a power failure must not let a second holder in",
        )


def replicas(facts: Facts, wanted: int | None, fails_over: bool) -> Iterator[Finding]:
    """redis-replicas: a failover to a replica that missed a grant lets a second holder in."""
    attached = facts.number("connected_slaves")
    if facts.is_replica:
        yield Finding(
            "redis-replicas",
            "danger",
            "this server is a replica: it grants no locks",
            "name its master in the URL, or its sentinels: redis+sentinel://h1,h2,h3/service",
        )
    elif wanted is not None:
        few = attached < wanted
        yield Finding(
            "redis-replicas",
            "danger" if few else "good",
            f"{wanted} of {attached} attached replicas must confirm a grant"
            + (": too few are attached, so no lock is granted" if few else ""),
            "see INFO replication, and start the missing replicas" if few else "",
        )
    elif attached or fails_over:
        least = facts.config.get("min-replicas-to-write")
        more = "" if least in (None, "0") else f" (min-replicas-to-write is {least})"
        yield Finding(
            "redis-replicas",
            "warning",
            f"replication is asynchronous{more}: a failover loses the last grants, and then two hold",
            "add ?replicas=majority to the URL; to a single address, ?replicas=1",
        )
    else:
        yield Finding(
            "redis-replicas",
            "note",
            "there is no replica: while this server is down, nobody gets a lock",
        )


def buffer(facts: Facts) -> Iterator[Finding]:
    """redis-pubsub-buffer: the server closes the wake-up connection if its buffer is too small."""
    limits = facts.config.get("client-output-buffer-limit")
    words = limits.split() if limits else []
    if "pubsub" not in words:
        yield Finding("redis-pubsub-buffer", "unknown", "the server does not tell client-output-buffer-limit")
        return
    hard = words[words.index("pubsub") + 1]
    least = int(hard) if hard.isdigit() else 0
    if 0 < least < SMALL_BUFFER_BYTES:
        yield Finding(
            "redis-pubsub-buffer",
            "warning",
            f"the server closes a subscription with more than {least} unread bytes: wake-ups of many "
            "waiters may be lost, and each then waits up to 5 s longer",
            'CONFIG SET client-output-buffer-limit "pubsub 33554432 8388608 60"',
        )
    else:
        yield Finding("redis-pubsub-buffer", "good", "the buffer for wake-ups is large enough")


def clock(facts: Facts) -> Iterator[Finding]:
    """redis-clock: ttls and tokens follow the clock of the server."""
    if not facts.offsets:
        yield Finding("redis-clock", "unknown", "the server does not tell its time")
        return
    moved, aside = max(facts.offsets) - min(facts.offsets), facts.offsets[-1]
    if moved > JUMP_S:
        yield Finding(
            "redis-clock",
            "warning",
            f"the server's clock moved by {duration(moved)} against ours while we looked: a jump forward "
            "ends leases early, and then two hold",
            "let chrony or ntpd slew the clock; never step it while locks are held",
        )
    elif abs(aside) > ASIDE_S:
        yield Finding(
            "redis-clock",
            "note",
            f"the server's clock is {duration(abs(aside))} {'ahead of' if aside > 0 else 'behind'} ours: "
            "the difference does no harm, but setting it right while locks are held may",
            "set it right while no lock is held",
        )
    else:
        yield Finding("redis-clock", "good", "the server's clock runs evenly with ours")


def findings_of(
    facts: Facts, wanted: int | None, fails_over: bool, *, several: bool = False
) -> list[Finding]:
    """All checks of one server; with `several`, each finding names it."""
    if facts.info:
        found = [*eviction(facts), *memory(facts), *persistence(facts)]
        found += replicas(facts, wanted, fails_over)
    else:
        told = "the server does not let this user run INFO, which would tell"
        found = [Finding(id, "unknown", told, "ACL SETUSER name +info") for id in OF_INFO]
    found += [*buffer(facts), *clock(facts)]
    server = facts.label if several else ""
    return [Finding(one.id, one.severity, one.text, one.remedy, server) for one in found]


def expect(examiner: Examiner, found: Iterable[Facts], confirmed: bool, fails_over: bool) -> None:
    """What failures would do to these servers; `confirmed`: replicas must have each grant."""
    servers = list(found)
    restart = worst(facts.survives_restart for facts in servers)
    power = worst(facts.survives_power_failure for facts in servers)
    examiner.expect("the server process dies", "yes", restart, UNTIL_BACK)
    examiner.expect("the power fails", "yes", power, UNTIL_BACK)
    if fails_over:
        kept: Answer = "yes" if confirmed else "no"
        examiner.expect("a replica takes over", "yes", kept, "until it has, for some seconds")
        examiner.expect("the network is cut", "yes", kept, "the side of the old master, until it heals")
    else:
        examiner.expect("the network is cut", "yes", "yes", "the other side, until it heals")
    examiner.expect("the server's clock jumps forward", "yes", "no", NOT_AT_ALL)
    examiner.expect("the server's clock is set back", "yes", "yes", "longer, by what it was set back")
    examiner.expect("an operator flushes the server", "yes", "no", NOT_AT_ALL)


def worst(answers: Iterable[Answer]) -> Answer:
    """no, if one is no; else unknown, if one is unknown, or there is none."""
    found = set(answers)
    return "no" if "no" in found else "unknown" if "unknown" in found or not found else "yes"
