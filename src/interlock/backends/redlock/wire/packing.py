"""Encodes requests as script calls, and decodes the replies. The header of each script says what it takes and
returns.

A request is encoded once for all nodes; only the identity of the node differs between connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from interlock.backends.redis.errors import reply_error, unexpected_answer
from interlock.backends.redis.scan import literally
from interlock.backends.redis.wire import packing
from interlock.backends.redis.wire.keys import Keys
from interlock.backends.redis.wire.packing import millis
from interlock.backends.redis.wire.resp import MALFORMED, ErrorReply, bulk, command
from interlock.backends.redis.wire.scripts import Call, Script
from interlock.backends.redlock.wire.packed import (
    RUN_ID_LENGTH,
    TTLS,
    NodeIdentity,
    Packed,
    PackedCheckIn,
    PackedForRun,
    PackedVote,
    encoded_ttl,
)
from interlock.backends.redlock.wire.requests import (
    Admit,
    CheckIn,
    Evict,
    Inspect,
    OnReply,
    Release,
    Renew,
    Reply,
    Request,
    Scan,
    Start,
    Vote,
)
from interlock.errors import ForeignKey, InterlockError, StoreUnfit
from interlock.model import Standing

REMEMBERED_S = 61.0  # seconds for which an eviction is remembered, at least

HERE = "../../redlock/wire/"  # this folder, as `Script` sees it from its own
_VOTE, _RELEASE, RENEW = (Script(HERE + name) for name in ("vote", "release", "renew"))
VOTE, VOTE_SHARED = _VOTE.call(3, 5), _VOTE.call(3, 8)
RELEASE, RELEASE_SO = _RELEASE.call(2, 1), _RELEASE.call(3, 3)
INSPECT = Script(HERE + "inspect").call(5, 2)
EVICT = Script(HERE + "evict").call(5, 6)
CHECKIN = Script(HERE + "checkin").call(1, 3)
_ADMIT, _START = Script(HERE + "admit").call(1, 5), Script(HERE + "start").call(1, 4)
# Always with the script itself: nobody waits for the reply that it must be sent again.
ADMIT, START = (Call(call.with_source, call.with_source) for call in (_ADMIT, _START))
SCAN = Script(HERE + "scan").call(0, 3)

NONE = bulk(b"")  # an argument that is not given


PLAIN_REPLIES = (Vote, Release, Renew)  # the hot path: their replies are used as they come


_SETTINGS = (b"appendonly", b"appendfsync", b"no-appendfsync-on-rewrite")
# Loaded on connecting: a release that must be sent again, with its script, may be too late if nobody waits
# for its reply.
_LOADED = (_VOTE, _RELEASE, RENEW)
HANDSHAKE = b"".join(
    [
        command(b"INFO", b"server"),
        command(b"INFO", b"replication"),
        *(command(b"CONFIG", b"GET", name) for name in _SETTINGS),
        *(command(b"SCRIPT", b"LOAD", script.source) for script in _LOADED),
    ]
)
"""The first requests on every connection.

A connection never outlives its server's process, so once is enough.
"""
HANDSHAKE_REPLIES = 2 + len(_SETTINGS) + len(_LOADED)


def node_identity(label: str, replies: list[Any]) -> NodeIdentity:
    """What the first replies say about the server; an error of ours if they are none of Redis'."""
    try:
        return _identity(label, replies)
    except MALFORMED as error:
        raise unexpected_answer(label, error) from error


def _identity(label: str, replies: list[Any]) -> NodeIdentity:
    info, past, settings = replies[0], replies[1], replies[2 : 2 + len(_SETTINGS)]
    if isinstance(info, ErrorReply):
        error = reply_error(label, info)
        raise type(error)(f"{error}; the nodes of a quorum need these, too: info script|load")
    run = info.partition(b"run_id:")[2].partition(b"\r")[0]
    # A promoted replica may have missed what its master had on disk, and CONFIG may be forbidden: neither
    # counts as durable.
    original = (
        not isinstance(past, ErrorReply) and b"role:master" in past and b"second_repl_offset:-1\r" in past
    )
    durable = original and [b"" if isinstance(reply, ErrorReply) else reply[1] for reply in settings] == [
        b"yes",
        b"always",
        b"no",
    ]
    usual = run if len(run) == RUN_ID_LENGTH else b""
    return NodeIdentity(bulk(run), bulk(run) + bulk(b"%d" % durable), usual)


def _numbers(counts: Sequence[int]) -> bytes:
    return b"".join([bulk(b"%d" % count) for count in counts])


def refuse_twice(label: str, identity: NodeIdentity, others: Iterable[tuple[str, NodeIdentity]]) -> None:
    """Refuse a server that one of these connections, which a request would use beside it, leads to
    already.
    """
    for known, its in others:
        if its.run == identity.run != NONE:
            raise same_server(label, known)


def same_server(label: str, known: str) -> StoreUnfit:
    return StoreUnfit(
        f"{label} is the same server as {known.removeprefix('Redis at ')}; each node of a quorum must be a "
        "server of its own"
    )


class Packing:
    """Encodes requests whose keys have one prefix."""

    def __init__(self, prefix: str) -> None:
        self.keys = Keys(prefix)
        self._quorum = bulk(self.keys.prefix + b"\x1fquorum")
        self._runs: dict[str, bytes] = {}  # by address: the run id of the server that was last met there

    def refuse_duplicate(self, label: str, identity: NodeIdentity) -> None:
        """Refuse a server that was met under another address: it would vote twice, and one crash would end
        both votes.

        If two servers changed addresses, each is refused until the other address has been asked again.
        """
        run = identity.run
        if run == NONE:
            return
        for known, its in list(self._runs.items()):
            if its == run and known != label:
                self._runs.pop(label, None)  # whoever was met here before may be met there now
                raise same_server(label, known)
        self._runs[label] = run

    def pack(self, request: Request) -> Packed:
        if isinstance(request, Vote):
            return self._vote(request)
        if isinstance(request, Release):
            return self._release(request)
        if isinstance(request, Renew):
            return self._renew(request)
        if isinstance(request, Inspect):
            limit = b"" if request.limit is None else b"%d" % request.limit
            return PackedForRun(INSPECT, self.keys.claim_keys(request.resource) + self._quorum, bulk(limit))
        if isinstance(request, Evict):
            parts = ((request.id or "").encode(), request.reason.encode(), millis(REMEMBERED_S))
            body = (
                self.keys.claim_keys(request.resource)
                + self._quorum
                + b"".join([bulk(part) for part in parts])
            )
            return PackedForRun(EVICT, body, packing.foreign_flags(request.foreign, request.no_expiry))
        if isinstance(request, CheckIn):
            return PackedCheckIn(CHECKIN, self._quorum, bulk(b"0" if request.read_only else b"1"))
        if isinstance(request, Admit):
            counts: tuple[int, ...] = (request.since, request.quarantine, request.floor, request.start)
            return PackedForRun(ADMIT, self._quorum, _numbers(counts))
        if isinstance(request, Start):
            counts = (request.since, request.start, int(request.begun))
            return PackedForRun(START, self._quorum, _numbers(counts))
        assert isinstance(request, Scan)
        return self._scan(request)

    def _vote(self, request: Vote) -> Packed:
        claim, keys = request.claim, self.keys
        note, who, id, ballot = (
            claim.note.encode(),
            claim.who.encode(),
            claim.id.encode(),
            b"%d" % request.ballot,
        )
        end = b"\n%d\n%b%b" % (len(note), note, who)
        body = b"%b%b$%d\r\n%b\r\n%b$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
            *(keys.of_votes.get(claim.resource) or keys.holder_keys(claim.resource), self._quorum),
            *(len(id), id, TTLS.get(claim.ttl) or encoded_ttl(claim.ttl)),
            *(len(ballot), ballot, len(end), end),
        )
        if claim.capacity == 1 and not request.fill:
            return PackedVote(VOTE, body, b"", request)
        shared = bulk(b"%d" % claim.permits) + bulk(b"%d" % claim.capacity) + bulk(b"%d" % request.fill)
        return PackedVote(VOTE_SHARED, body, shared, request)

    def _release(self, request: Release) -> Packed:
        id, keys, resource = request.id.encode(), self.keys, request.resource
        names = keys.of_quorum_releases.get(resource) or keys.waiters_keys(resource)
        body = b"%b$%d\r\n%b\r\n" % (names, len(id), id)
        if request.linger <= 0 and not request.upto:
            return Packed(RELEASE, body, request)
        linger = bulk(millis(request.linger)) if request.linger > 0 else b"$1\r\n0\r\n"
        so = linger + bulk(b"%d" % request.upto if request.upto else b"")
        return Packed(RELEASE_SO, b"%b%b%b%b" % (names, self._quorum, bulk(id), so), request)

    def _renew(self, request: Renew) -> Packed:
        items = request.items
        keys = [self._quorum]
        args: list[bytes] = []
        for item in items:
            ttl = encoded_ttl(item.ttl)
            keys.append(self.keys.claim_keys(item.resource))
            permits = NONE if item.permits is None else bulk(b"%d" % item.permits)
            note = NONE if item.note is None else bulk(b"=" + item.note.encode())
            token = bulk(b"%d" % item.token) if item.token else NONE
            args += (bulk(item.id.encode()), ttl, permits, note, token)
        call = RENEW.call(1 + 4 * len(items), 1 + 5 * len(items))
        return PackedForRun(call, b"".join(keys), b"".join(args))

    def _scan(self, request: Scan) -> Packed:
        kind, _, cursor = (request.cursor or "string:0").partition(":")
        wanted = literally(self.keys.holder(request.prefix))
        pattern = wanted + b"*" if kind == "string" else b"*" + wanted + b"*\x1fh"
        return Packed(SCAN, bulk(cursor.encode()) + bulk(pattern) + bulk(kind.encode()))

    @staticmethod
    def standing(busy: list[Any]) -> Standing | None:
        """The oldest holder, from the reply to a refused vote."""
        return packing.holder(busy[4], busy[0])

    def decoding(self, request: Request, on_reply: OnReply) -> OnReply:
        """An `on_reply` that takes the scripts' replies, for requests other than `PLAIN_REPLIES`."""

        def decoded_reply(node: int, reply: Any, sent: float, received: float) -> bool:
            answer = reply if isinstance(reply, InterlockError) else self._decoded(request, reply)
            return on_reply(node, answer, sent, received)

        return decoded_reply

    def _decoded(self, request: Request, reply: list[Any]) -> Reply:
        """The reply as `requests` describes it."""
        if isinstance(request, Inspect):
            now, capacity, _, *parts = reply[2]
            reply[2:] = [capacity, tuple(packing.standings(int(now), parts))]
        elif isinstance(request, Evict):
            try:
                reply[2] = tuple(packing.evicted(request.resource, reply[2])[0])
            except ForeignKey as error:
                return error
        elif isinstance(request, Scan):
            self._decode_scan(request, reply)
        elif isinstance(request, CheckIn):
            reply[1], reply[7] = reply[1].decode(), reply[7].decode()
        return reply

    def _decode_scan(self, request: Scan, reply: list[Any]) -> None:
        kind = (request.cursor or "string:").partition(":")[0]
        names = [self.keys.resource(key) for key in reply[2]]
        reply[2] = tuple([name for name in names if name is not None and name.startswith(request.prefix)])
        cursor = reply[1].decode()
        reply[1] = f"{kind}:{cursor}" if cursor != "0" else ("hash:0" if kind == "string" else "")
