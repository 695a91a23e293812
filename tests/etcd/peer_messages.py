"""Ways between members that can be stopped message by message: each message of raft is passed, held, or lost, as a rule says.

The messages of raft from B to A are the body of the answer to a GET that A sent to B; the request names A (`X-Server-From`). The way
before B's peer port reads the messages out of that body (a length, then protobuf) and asks the rule for each of them. A message that is
held holds all behind it. A POST from A to B waits while the way from A to B is blocked.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Literal

from interlock.backends.etcd.wire.protobuf import decode, integer, text
from interlock.testing.servers.etcd import EtcdCluster
from interlock.testing.servers.proxy import Connection, Piece, Proxy

SENDER = re.compile(rb"X-Server-From: ([0-9a-f]+)", re.IGNORECASE)
TYPES = (
    *("Hup", "Beat", "Prop", "App", "AppResp", "Vote", "VoteResp", "Snap", "Heartbeat", "HeartbeatResp"),
    *(
        "Unreachable",
        "SnapStatus",
        "CheckQuorum",
        "TransferLeader",
        "TimeoutNow",
        "ReadIndex",
        "ReadIndexResp",
    ),
    *("PreVote", "PreVoteResp"),
)

Pair = tuple[str, str]
Fate = Literal["pass", "hold", "lose"]


class PeerMessage:
    """One message of raft."""

    def __init__(self, data: bytes) -> None:
        fields = decode(data)
        number = integer(fields, 1)
        self.type = TYPES[number] if number < len(TYPES) else str(number)
        self.term = integer(fields, 4)
        self.context = text(fields, 12)  # the id of the read that a heartbeat confirms
        if self.type.startswith("ReadIndex"):
            self.context = text(decode(text(fields, 7)), 4)

    def __repr__(self) -> str:
        return f"{self.type}(term {self.term}, {self.context.hex()[-8:]})"


Rule = Callable[[PeerMessage], Fate]


class Seen:
    """A message that came to a way, and when."""

    def __init__(self, when: float, sender: str, receiver: str, message: PeerMessage) -> None:
        self.when, self.sender, self.receiver, self.message = when, sender, receiver, message


class PeerWays:
    """The ways to the peer ports of all members. Made before the cluster starts; `know` it when it runs."""

    def __init__(self, cluster: EtcdCluster) -> None:
        self._names: dict[int, str] = {}  # of members, by their ids
        self._rules: dict[Pair, Rule] = {}
        self._blocked: set[Pair] = set()
        self._changed = threading.Condition()
        self._asked_again = asyncio.Event()  # for the proxies' thread
        self.seen: list[Seen] = []
        self.watching = False
        self._proxies = {
            member.name: Proxy(member.peer_port, intercept=partial(self._see, member.name))
            for member in cluster.members
        }
        for member in cluster.members:
            member.peer_address = f"http://127.0.0.1:{self._proxies[member.name].port}"

    def know(self, cluster: EtcdCluster) -> None:
        """The members have ids now, which their requests name."""
        for member in cluster.members:
            status = member.status()
            assert status is not None
            self._names[status.member % (1 << 64)] = member.name

    # ---- what a test does ---------------------------------------------------------------

    def rule(self, sender: str, receiver: str, rule: Rule) -> None:
        with self._changed:
            self._rules[sender, receiver] = rule
        self.ask_again()

    def block(self, *pairs: Pair) -> None:
        with self._changed:
            self._blocked.update(pairs)

    def ask_again(self) -> None:
        """The rules may say something else now about what is held."""

        def wake() -> None:
            self._asked_again.set()
            self._asked_again = asyncio.Event()

        next(iter(self._proxies.values())).call(wake)

    def free(self) -> None:
        with self._changed:
            self._blocked.clear()
            self._rules.clear()
        self.ask_again()

    def until(self, fact: Callable[[], object], patience: float) -> bool:
        """Whether a fact about `seen` holds within so many seconds."""
        end = time.monotonic() + patience
        with self._changed:
            while not fact():
                if (left := end - time.monotonic()) <= 0:
                    return False
                self._changed.wait(left)
            return True

    def close(self) -> None:
        for proxy in self._proxies.values():
            proxy.close()

    # ---- in the proxies' thread ---------------------------------------------------------

    async def _see(self, target: str, piece: Piece) -> bytes | None:
        """Whatever goes over a connection that somebody made to the member `target`."""
        stream = piece.connection.label or self._begin(piece.connection, piece.data)
        if piece.is_request:
            if not stream.answers:
                await self._until_free(self._names.get(stream.dialer, ""), target)
            return piece.data
        if not stream.answers:
            return piece.data
        for data, message in stream.answers.read(piece.data):
            if message is None:
                await self._until_free(target, self._names.get(stream.dialer, ""))
            elif not await self._passes(target, stream.dialer, message):
                continue
            piece.pass_on(data)
        return None

    def _begin(self, connection: Connection, first: bytes) -> _Conversation:
        found = SENDER.search(first)
        path = first.split(b" ", 2)[1] if b" " in first else b""
        answers = _Answer(b"/message/" in path) if b"/raft/stream/" in path else None
        connection.label = made = _Conversation(int(found[1], 16) if found else 0, answers)
        return made

    async def _until_free(self, *pair: str) -> None:
        while pair in self._blocked:
            await self._asked_again.wait()

    async def _passes(self, sender: str, dialer: int, message: PeerMessage) -> bool:
        """Whether it is sent on; returns when that is decided."""
        told = False
        while True:
            with self._changed:
                pair = (sender, self._names.get(dialer, ""))
                rule = self._rules.get(pair)
                fate: Fate = rule(message) if rule else "hold" if pair in self._blocked else "pass"
                if self.watching and not told:
                    told = True
                    self.seen.append(Seen(time.monotonic(), *pair, message))
                    self._changed.notify_all()
            if fate != "hold":
                return fate == "pass"
            await self._asked_again.wait()


class _Conversation:
    """One connection: the id of the member that made it, and the answer to it, if that is a stream."""

    def __init__(self, dialer: int, answers: _Answer | None) -> None:
        self.dialer, self.answers = dialer, answers


class _Answer:
    """The answer to a GET, as it comes: its head as it is, then its chunks; a stream of messages is read message by message."""

    def __init__(self, messages: bool) -> None:
        self._messages = messages
        self._data = b""
        self._parts = self._read()
        next(self._parts)

    def read(self, data: bytes) -> Iterator[tuple[bytes, PeerMessage | None]]:
        """The parts that are complete now, and what each says."""
        self._data += data
        while (part := self._parts.send(None)) is not None:
            yield part

    def _take(self, size: int) -> bytes:
        taken, self._data = self._data[:size], self._data[size:]
        return taken

    def _read(self) -> Generator[tuple[bytes, PeerMessage | None] | None, None, None]:
        yield None
        while (end := self._data.find(b"\r\n\r\n")) < 0:
            yield None
        yield self._take(end + 4), None
        body = b""
        while True:
            while (end := self._data.find(b"\r\n")) < 0:
                yield None
            size = int(self._data[:end] or b"0", 16)
            while len(self._data) < end + 2 + size + 2:
                yield None
            chunk = self._take(end + 2 + size + 2)
            if size == 0 or not self._messages:
                yield chunk, None
                continue
            body += chunk[end + 2 : -2]
            while len(body) >= 8 and len(body) >= (end := 8 + int.from_bytes(body[:8], "big")):
                frame, body = body[:end], body[end:]
                yield b"%x\r\n%s\r\n" % (len(frame), frame), PeerMessage(frame[8:])
