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
from interlock.backends.redlock.wire.packing import Packed, Packing
from interlock.backends.redlock.wire.requests import Release, Vote
from interlock.model import Claim

ID, CHANNEL = "0123456789abcdef0123-1f", b"interlock:0123456789abcdef"
WHO = '["host",1234,"MainThread","app/jobs.py:88"]'
BALLOT = 8  # which word of a vote it is
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


def _ballots(name: str) -> tuple[Packed, Packed]:
    packing = Packing("")
    return packing.pack(Vote(_claim(name), time.time_ns() // 1000)), packing.pack(Release(name, ID))


def _run_ids(infos: list[bytes]) -> list[bytes]:
    return [bulk(info.partition(b"run_id:")[2].partition(b"\r")[0]) for info in infos]


def _votes(name: str, runs: list[bytes]) -> tuple[list[Words], Words]:
    vote, release = _ballots(name)
    words = [(b"", run, b"") for run in runs]
    return [_words(vote.by_hash(each)) for each in words], _words(release.by_hash(words[0]))


def on_five(ports: list[int], stack: ExitStack) -> Callable[[], object]:
    _warmed("redlock://" + ",".join(f"127.0.0.1:{port}" for port in ports))
    five = [Bare(port) for port in ports]
    for bare in five:
        stack.callback(bare.close)
    votes, release = _votes("bench", _run_ids([bare.ask(b"INFO", b"server") for bare in five]))
    ballots = count(int(votes[0][BALLOT]) + 60_000_000)

    def pair() -> None:
        ballot = b"%d" % next(ballots)
        for bare, vote in zip(five, votes, strict=True):
            vote[BALLOT] = ballot
            bare.send(*vote)
        for bare in five:
            bare.read()
        for bare in five:
            bare.send(*release)
        for bare in five:
            bare.read()

    return pair


async def in_tasks_on_five(ports: list[int]) -> Opened:
    _warmed("redlock://" + ",".join(f"127.0.0.1:{port}" for port in ports))
    five: list[BareProtocol] = [await bare_protocol(port) for port in ports]
    runs = _run_ids([await bare.ask(b"INFO", b"server") for bare in five])
    requests: dict[str, tuple[list[Words], Words]] = {}
    ballots = count(time.time_ns() // 1000 + 60_000_000)

    async def pair(name: str) -> None:
        if name not in requests:
            requests[name] = _votes(name, runs)
        votes, release = requests[name]
        ballot = b"%d" % next(ballots)
        for vote in votes:
            vote[BALLOT] = ballot
        for reply in [bare.ask(*vote) for bare, vote in zip(five, votes, strict=True)]:
            await reply
        for reply in [bare.ask(*release) for bare in five]:
            await reply

    async def close() -> None:
        for bare in five:
            await bare.close()

    return pair, close
