"""interlock's own requests on bare connections: what its promises cost the servers, before any of its Python.

No client that keeps these promises by these scripts can be quicker; what `interlock` takes beyond it is its Python.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count

import hiredis

import interlock
from benchmarks.redis_server import Bare, BareProtocol, bare_protocol, url
from benchmarks.tasks import Opened
from interlock.backends.redis.wire import packing
from interlock.backends.redis.wire.keys import Keys
from interlock.backends.redis.wire.resp import bulk
from interlock.backends.redis.wire.scripts import CLAIM, RELEASE
from interlock.backends.redlock.wire.packed import RUN_ID_LENGTH, NodeIdentity
from interlock.backends.redlock.wire.packing import Packing
from interlock.backends.redlock.wire.requests import Release, Vote
from interlock.model import Claim

ID, CHANNEL = "0123456789abcdef0123-1f", b"interlock:0123456789abcdef"
WHO = '["host",1234,"MainThread","app/jobs.py:88"]'
TASKS = 64
Words = list[bytes]


def _words(request: bytes) -> Words:
    """What a request says, word by word."""
    reader = hiredis.Reader()
    reader.feed(request)
    words: Words = reader.gets()
    return words


def _claim(name: str) -> Claim:
    return Claim(name, ID, 30.0, who=WHO, block=16)


def _requests(name: str) -> tuple[Words, Words]:
    keys = Keys("")
    release = keys.claim_keys(name) + bulk(ID.encode()) + bulk(CHANNEL)
    claim = packing.claim_request(keys, _claim(name), CHANNEL)
    return _words(CLAIM.by_hash + claim), _words(RELEASE.by_hash + release)


def on_one(port: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """A pair on one server, and how to close what was opened."""
    _warmed(url(port))
    bare, (claim, release) = Bare(port), _requests("bench")

    def pair() -> None:
        bare.ask(*claim)
        bare.ask(*release)

    return pair, bare.close


async def in_tasks_on_one(ports: list[int]) -> Opened:
    _warmed(url(ports[0]))
    bare = await bare_protocol(ports[0])
    requests: dict[str, tuple[Words, Words]] = {}

    async def pair(name: str) -> None:
        if name not in requests:
            requests[name] = _requests(name)
        claim, release = requests[name]
        await bare.ask(*claim)
        await bare.ask(*release)

    return pair, bare.close


# ---- a quorum -----------------------------------------------------------------------------


def _warmed(address: str) -> None:
    """The servers know the scripts, and the nodes of a quorum have their vote."""
    with interlock.connect(address) as client, client.lock("warm-up"):
        pass


Votes = Callable[[bytes], list[bytes]]
"""For a ballot, the votes to all servers."""


def _quorum(ports: list[int], names: list[str]) -> list[bytes]:
    """The seats of the nodes, which know a number for each of these names."""
    with interlock.connect("redlock://" + ",".join(f"127.0.0.1:{port}" for port in ports)) as client:
        for name in names:
            with client.lock(name):
                pass
    seats: list[bytes] = []
    for port in ports:
        bare = Bare(port)
        seats += bare.ask(b"ZRANGEBYSCORE", b"\x1fquorum", b"-0.2", b"-0.2")
        bare.close()
    return seats


def _votes(name: str, seats: list[bytes]) -> Votes:
    """Builds votes from the parts that `packing` makes, with ballots of the same length."""
    ballot = b"1" * 16
    vote = Packing("").pack(Vote(_claim(name), int(ballot), seats=[seat[RUN_ID_LENGTH:] for seat in seats]))
    runs = [seat[:RUN_ID_LENGTH] for seat in seats]
    whole = [vote.by_hash(NodeIdentity(bulk(run), run_id=run), node) for node, run in enumerate(runs)]
    return lambda number: [each.replace(ballot, number) for each in whole]


def _release(name: str) -> bytes:
    return Packing("").pack(Release(name, ID)).by_hash(NodeIdentity(), 0)


def on_five(ports: list[int], stack: ExitStack) -> Callable[[], object]:
    votes, release = _votes("bench", _quorum(ports, ["bench"])), _release("bench")
    five = [Bare(port) for port in ports]
    for bare in five:
        stack.callback(bare.close)
    ballots = count(time.time_ns() // 1000 + 60_000_000)

    def pair() -> None:
        for bare, vote in zip(five, votes(b"%d" % next(ballots)), strict=True):
            bare.send_encoded(vote)
        for bare in five:
            bare.read()
        for bare in five:
            bare.send_encoded(release)
        for bare in five:
            bare.read()

    return pair


async def in_tasks_on_five(ports: list[int]) -> Opened:
    seats = _quorum(ports, [f"bench/{number}" for number in range(TASKS)])
    five: list[BareProtocol] = [await bare_protocol(port) for port in ports]
    requests: dict[str, tuple[Votes, bytes]] = {}
    ballots = count(time.time_ns() // 1000 + 60_000_000)

    async def pair(name: str) -> None:
        if name not in requests:
            requests[name] = _votes(name, seats), _release(name)
        votes, release = requests[name]
        encoded = votes(b"%d" % next(ballots))
        for reply in [bare.ask_encoded(vote) for bare, vote in zip(five, encoded, strict=True)]:
            await reply
        for reply in [bare.ask_encoded(release) for bare in five]:
            await reply

    async def close() -> None:
        for bare in five:
            await bare.close()

    return pair, close
