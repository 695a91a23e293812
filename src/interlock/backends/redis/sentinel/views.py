"""What sentinels report, and when a majority of them is known to have agreed on a master. Data only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interlock._support.record import record

NEVER = float("-inf")
# Seconds within which a sentinel tells the others which master it knows; it does so every two seconds.
HELLO_S = 3.0
SAME_EVENT_MS = 100  # milliseconds: two times of a sentinel that are closer together may be of one event
OUT_OF_REACH = {b"disconnected", b"s_down", b"o_down"}


@record
class ReportedMaster:
    """The master of a service as one sentinel reports it."""

    epoch: int  # of the failover that made it master
    host: str
    port: int
    replicas: int  # all known ones, dead ones included

    def same_as(self, other: ReportedMaster) -> bool:
        """Whether both are one server.

        The epoch does not tell: in a failover it rises before the address changes.
        """
        return (self.host, self.port) == (other.host, other.port)


@record
class SentinelView:
    """What one sentinel says about the master and about the other sentinels."""

    master: ReportedMaster
    id: str  # its own; empty if it does not tell
    sentinels: int  # all that it knows, itself and dead ones included
    # The others that are in reach, by id, and how many seconds ago each told it its master.
    heard: tuple[tuple[str, float], ...]


def read_view(master: Any, id: Any, others: Any) -> SentinelView:
    """The view from the replies to `SENTINEL MASTER`, `SENTINEL MYID` and `SENTINEL SENTINELS`; None where
    one was refused.
    """
    facts = _facts(master)
    host, port = facts[b"ip"].decode(), int(facts[b"port"])
    if not host or not 0 < port < 65536:
        raise ValueError(f"a master at {host!r}, port {port}")
    reported = ReportedMaster(
        int(facts.get(b"config-epoch", 0)), host, port, int(facts.get(b"num-slaves", 0))
    )
    since = int(facts.get(b"role-reported-time", 0))
    entries = [_facts(other) for other in others or ()]
    return SentinelView(
        reported,
        (id or b"").decode(),
        int(facts.get(b"num-other-sentinels", 0)) + 1,
        tuple(
            (entry[b"runid"].decode(), int(entry[b"last-hello-message"]) / 1000)
            for entry in entries
            if entry.get(b"runid") and _has_told(entry, since)
        ),
    )


def _has_told(entry: dict[bytes, bytes], since: int) -> bool:
    """Whether the sentinel of an entry is in reach, and has told its master in the last `since` milliseconds,
    for which the one that lists it has watched this master.

    One that starts sets all times of those in its file to its start, as if it had heard them just then. And
    it calls one connected as soon as it begins to connect: so a ping must have been answered, too.
    """
    flags = set(entry.get(b"flags", b"").split(b","))
    if b"sentinel" not in flags or flags & OUT_OF_REACH:
        return False
    unanswered = int(entry.get(b"last-ping-sent", since))  # 0 if none is
    answered = unanswered == 0 or unanswered + SAME_EVENT_MS <= int(entry.get(b"last-ok-ping-reply", 0))
    return answered and int(entry.get(b"last-hello-message", since)) + SAME_EVENT_MS <= since


def _facts(words: Any) -> dict[bytes, bytes]:
    return dict(zip(words[::2], words[1::2], strict=True))


def majority(sentinels: int) -> int:
    """How many of so many are a majority."""
    return sentinels // 2 + 1


def counted(views: Sequence[SentinelView], before: int) -> int:
    """How many sentinels there are, if there were so many `before`.

    One that lost its memory counts those alone that it hears, which may be all on one side of a cut. So a
    smaller number counts only if a majority of the larger one is there.
    """
    count = max((view.sentinels for view in views), default=0)
    there = {view.id or f"{number}" for number, view in enumerate(views)}
    if all(view.id for view in views):
        there.update(id for view in views for id, age in view.heard if age <= HELLO_S)
    return count if len(there) >= majority(before) else max(count, before)


def agreed_at(
    views: Sequence[SentinelView],
    master: ReportedMaster,
    asked: float,
    known: int = 0,
    hearsay: float = 0.0,
) -> float:
    """The last instant at which a majority of the sentinels is known to have named this master; `NEVER` if
    there is none. A majority is one of all that those count which name it, and at least one of `known`.

    A sentinel that has answered us counts as of `asked`, when the question was sent. Another one counts as of
    the last time it told one of those which master it knows: had it named a later one, the sentinel that
    answered us would name that, too. So it is enough that a URL names some of the sentinels, and that those
    hear the others; what they have heard within the last `hearsay` seconds then counts as of `asked`, too.
    """
    agreeing = [view for view in views if view.master.same_as(master)]
    times: dict[str, float] = {}
    if all(view.id for view in views):
        for id, age in (entry for view in agreeing for entry in view.heard):
            times[id] = max(times.get(id, NEVER), asked - max(0.0, age - hearsay))
        for view in views:
            times.pop(view.id, None)  # it speaks for itself
    # By id: two addresses of a URL may lead to one sentinel.
    times.update({view.id or f"{number}": asked for number, view in enumerate(agreeing)})
    needed = majority(max(known, *(view.sentinels for view in agreeing), 1))
    latest = sorted(times.values(), reverse=True)
    return latest[needed - 1] if len(latest) >= needed else NEVER
