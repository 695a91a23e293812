"""Ways between members that can be stopped message by message: each message of raft is passed, held, or lost, as a rule says.

The messages of raft from B to A are the body of the answer to a GET that A sent to B; the request names A (`X-Server-From`). The way
before B's peer port reads the messages out of that body (a length, then protobuf) and asks the rule for each of them. A message that is
held holds all behind it. A POST from A to B waits while the way from A to B is blocked.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Literal

from interlock.backends.etcd.wire.protobuf import decode, integer, text
from interlock.testing.servers.etcd import EtcdCluster

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
        self.seen: list[Seen] = []
        self.watching = False
        self._ended = False
        self._sockets: list[socket.socket] = []
        self._targets = {member.name: member.peer_port for member in cluster.members}
        for member in cluster.members:
            listening = socket.create_server(("127.0.0.1", 0))
            self._sockets.append(listening)
            member.peer_address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            threading.Thread(target=self._accept, args=(listening, member.name), daemon=True).start()

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
            self._changed.notify_all()

    def block(self, *pairs: Pair) -> None:
        with self._changed:
            self._blocked.update(pairs)

    def ask_again(self) -> None:
        """The rules may say something else now about what is held."""
        with self._changed:
            self._changed.notify_all()

    def free(self) -> None:
        with self._changed:
            self._blocked.clear()
            self._rules.clear()
            self._changed.notify_all()

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
        self._ended = True
        for sock in self._sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            with suppress(OSError):
                sock.close()

    # ---- the ways -----------------------------------------------------------------------

    def _accept(self, listening: socket.socket, name: str) -> None:
        while True:
            try:
                came, _ = listening.accept()
            except OSError:
                return
            self._sockets.append(came)
            threading.Thread(target=self._serve, args=(came, name), daemon=True).start()

    def _serve(self, came: socket.socket, target: str) -> None:
        with suppress(OSError), came:
            came.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            first = came.recv(65536)
            found = SENDER.search(first)
            dialer = int(found[1], 16) if found else 0
            path = first.split(b" ", 2)[1] if b" " in first else b""
            stream = b"/raft/stream/" in path
            if not stream:
                self._wait_until_free(self._names.get(dialer, ""), target)
            with socket.create_connection(("127.0.0.1", self._targets[target])) as gone:
                gone.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets.append(gone)
                gone.sendall(first)
                if stream:
                    back = threading.Thread(
                        target=self._stream,
                        args=(gone, came, target, dialer, b"/message/" in path),
                        daemon=True,
                    )
                else:
                    back = threading.Thread(target=self._pump, args=(gone, came), daemon=True)
                back.start()
                self._pump(came, gone, None if stream else (dialer, target))
                back.join()

    def _wait_until_free(self, *pair: str) -> None:
        with self._changed:
            while pair in self._blocked and not self._ended:
                self._changed.wait(1)

    def _pump(self, source: socket.socket, target: socket.socket, way: tuple[int, str] | None = None) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if way is not None:
                    self._wait_until_free(self._names.get(way[0], ""), way[1])
                target.sendall(data)
        _hang_up(source, target)

    def _stream(
        self, source: socket.socket, target: socket.socket, sender: str, dialer: int, messages: bool
    ) -> None:
        """The answer to a GET: its head as it is, then its chunks; a stream of messages is read message by message."""
        try:
            with source.makefile("rb") as file:
                self._relay(file, target, sender, dialer, messages)
        except (OSError, ValueError):
            pass  # one of them has hung up
        finally:
            _hang_up(source, target)

    def _relay(
        self, file: IO[bytes], target: socket.socket, sender: str, dialer: int, messages: bool
    ) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            if not (line := file.readline()):
                return
            head += line
        target.sendall(head)
        body = b""
        while line := file.readline():
            size = int(line.strip() or b"0", 16)
            data = file.read(size)
            file.readline()
            if size == 0:
                target.sendall(b"0\r\n\r\n")
                return
            if not messages:
                self._wait_until_free(sender, self._names.get(dialer, ""))
                _send_chunk(target, data)
                continue
            body += data
            while len(body) >= 8 and len(body) >= (end := 8 + int.from_bytes(body[:8], "big")):
                frame, body = body[:end], body[end:]
                if self._passes(sender, dialer, PeerMessage(frame[8:])):
                    _send_chunk(target, frame)

    def _passes(self, sender: str, dialer: int, message: PeerMessage) -> bool:
        """Whether it is sent on; returns when that is decided."""
        told = False
        with self._changed:
            while not self._ended:
                pair = (sender, self._names.get(dialer, ""))
                rule = self._rules.get(pair)
                fate: Fate = rule(message) if rule else "hold" if pair in self._blocked else "pass"
                if self.watching and not told:
                    told = True
                    self.seen.append(Seen(time.monotonic(), *pair, message))
                    self._changed.notify_all()
                if fate != "hold":
                    return fate == "pass"
                self._changed.wait(1)
        return False


def _send_chunk(target: socket.socket, data: bytes) -> None:
    target.sendall(b"%x\r\n%s\r\n" % (len(data), data))


def _hang_up(*sockets: socket.socket) -> None:
    for sock in sockets:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
