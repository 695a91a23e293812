"""The connection to one master of a Cluster that somebody waits on, for what is published in its shard."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import Any, Protocol

from interlock.backends.redis.cluster.slots import Place, place_in
from interlock.backends.redis.cluster.topology import Cluster
from interlock.backends.redis.pubsub.heartbeat import PING, Pulse
from interlock.backends.redis.pubsub.listener import AGAIN
from interlock.backends.redis.transport.pool import Wire, connected
from interlock.backends.redis.wire.keys import slot
from interlock.backends.redis.wire.resp import Failure, Garbled, command
from interlock.errors import InterlockError
from interlock.ports import Guard, Signal


class Trunk(Protocol):
    """What a branch tells; see `sharded`, where it is."""

    @property
    def guard(self) -> Guard: ...
    @property
    def closed(self) -> bool: ...
    def heard(self, message: bytes) -> None: ...
    def confirmed(self, branch: Branch, channel: bytes) -> None: ...
    def dropped(self, branch: Branch, channels: Collection[bytes]) -> list[Signal]: ...
    def unneeded(self, branch: Branch, now: float) -> list[bytes]: ...
    def ended(self, branch: Branch) -> None: ...


class Branch:
    """The connection to one master, for as long as it lasts and somebody needs it.

    A thread each: one that connects to a dead node must not keep what others say from being heard.
    """

    def __init__(self, trunk: Trunk, way: Cluster, place: Place) -> None:
        self.place = place
        self.channels: set[bytes] = set()  # asked for here, confirmed or not
        self._leaving: set[bytes] = set()  # given up; not yet confirmed
        self._trunk = trunk
        self._way = way
        self._wire: Wire | None = None
        self._thread = threading.Thread(target=self._run, name="interlock-redis", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def want(self, channel: bytes) -> None:
        """Subscribe to it, now or once there is a connection; under the guard."""
        if channel not in self.channels:
            self.channels.add(channel)
            if self._wire is not None and channel not in self._leaving:
                self._send(command(b"SSUBSCRIBE", channel))

    def leave(self) -> None:
        """Those who wait here belong elsewhere now; also while this is still connecting to a node that is dead."""
        self._lose(self.channels)
        self.hang_up()

    def hang_up(self) -> None:
        wire = self._wire
        if wire is not None:
            wire.hang_up()

    def join(self, timeout: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    # ---- the thread -------------------------------------------------------------------

    def _run(self) -> None:
        wire = None
        try:
            wire = connected(self._way.member(self.place), self._way.connect_timeout)
            if self._begun(wire):
                self._hear_all(wire)
        except (OSError, EOFError, Garbled, ValueError):
            pass  # lost: whoever waits looks again
        except (InterlockError, Failure):  # they look for themselves, and hear from the server what is wrong
            self._lose(self.channels)
            time.sleep(AGAIN)
        finally:
            self._lose(self.channels, last=True)
            if wire is not None:
                wire.close()

    def _lose(self, channels: Collection[bytes], last: bool = False) -> None:
        """Have all who wait on these look again; with `last` nobody comes here any more."""
        with self._trunk.guard:
            signals = self._trunk.dropped(self, channels)
            if last:
                self._wire = None
                self._trunk.ended(self)
        for signal in signals:
            signal.set()

    def _begun(self, wire: Wire) -> bool:
        with self._trunk.guard:
            if self._trunk.closed:
                return False
            self._wire = wire
            wire.share()
            for channel in self.channels:  # one by one: they are in different slots
                self._send(command(b"SSUBSCRIBE", channel))
            return True

    def _hear_all(self, wire: Wire) -> None:
        pulse, sweeps_at = Pulse(PING), time.monotonic() + PING
        while not self._trunk.closed:
            replies = wire.receive(PING)
            for reply in replies:
                self._take(reply)
            if (now := time.monotonic()) >= sweeps_at:
                sweeps_at = now + PING
                if not self._swept(now):
                    return
            if pulse.faint(bool(replies), now):
                with self._trunk.guard:
                    self._send(command(b"PING"))

    def _take(self, reply: Any) -> None:
        if isinstance(reply, Failure):
            self._refused(reply)
        elif reply != b"PONG":  # which is said so before anything is subscribed to
            kind, channel, *rest = reply
            if kind == b"smessage":
                self._trunk.heard(rest[0])
            elif kind == b"ssubscribe":
                self._trunk.confirmed(self, channel)
            elif kind == b"sunsubscribe":
                self._left(channel)

    def _left(self, channel: bytes) -> None:
        """A channel is not subscribed to any more: as we wished, or because its slot has moved."""
        with self._trunk.guard:
            ours = channel in self._leaving
            self._leaving.discard(channel)
            if ours and channel in self.channels:  # somebody came meanwhile
                self._send(command(b"SSUBSCRIBE", channel))
        if not ours:
            self._moved({channel})

    def _refused(self, failure: Failure) -> None:
        """A slot that is elsewhere is no other's trouble; all other refusals end the connection."""
        if failure.code != "MOVED":
            raise failure
        number = int(failure.text.split(" ")[1])
        self._way.suspect(self.place, place_in(failure.text, self.place, self._way.remap))
        self._moved({channel for channel in list(self.channels) if slot(channel) == number})

    def _moved(self, channels: set[bytes]) -> None:
        with self._trunk.guard:
            self.channels -= channels
            self._leaving -= channels
            signals = self._trunk.dropped(self, channels)
        for signal in signals:
            signal.set()

    def _swept(self, now: float) -> bool:
        """Give up what nobody needs. False once that is everything."""
        with self._trunk.guard:
            idle = self._trunk.unneeded(self, now)
            self.channels.difference_update(idle)
            if not self.channels:
                self._trunk.ended(self)
                return False
            self._leaving.update(idle)
            for channel in idle:
                self._send(command(b"SUNSUBSCRIBE", channel))
            return True

    def _send(self, request: bytes) -> None:
        """Under the guard."""
        assert self._wire is not None
        try:
            self._wire.send(request)
        except OSError:
            self._wire.hang_up()  # its reader finds out
