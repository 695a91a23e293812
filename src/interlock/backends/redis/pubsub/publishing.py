"""Whether this client can wake others: its user may lack the right to publish, or the server may lack the
command.

The scripts do their work all the same, but nobody wakes the waiters of such a user or server. Those waiters
poll instead, a few times a second.
"""

from __future__ import annotations

from interlock.backends.redis.transport.interface import Transport
from interlock.backends.redis.wire.resp import ErrorReply, command
from interlock.errors import StoreUnavailable

POLL_PERIOD_S = 0.2  # seconds between two polls of a waiter that nobody wakes
TEST = command(b"PUBLISH", b"interlock:test", b"")  # nobody subscribes to this channel


class PublishRight:
    """What one client knows about its right to publish; its sync and async sides share it."""

    def __init__(self, label: str) -> None:
        self._label = label
        self.works: bool | None = None  # None: not known yet

    async def check(self, transport: Transport, channel: bytes, timeout: float) -> None:
        """Find out, once, before the first waiter waits on this channel."""
        if self.works is not None or channel.startswith(b"Sinterlock:"):
            return  # for sharded channels the node was asked when the channel was chosen
        try:
            reply = await transport.ask(TEST, timeout)
        except StoreUnavailable:
            return  # the next waiter asks again
        if isinstance(reply, ErrorReply) and ("NOPERM" in reply.text or "unknown command" in reply.text):
            self.denied()
        elif not isinstance(reply, ErrorReply):
            self.works = True

    def denied(self) -> None:
        """Note that the server refused to publish, and log it once."""
        if self.works is False:
            return
        self.works = False
        import logging  # here, not above: `import interlock` stays light

        logging.getLogger("interlock").warning(
            "%s does not let this user publish, so waiters are not woken and look %.0f times a second; "
            "allow the channels: ACL SETUSER name &interlock:* &prefix* +publish",
            self._label,
            1 / POLL_PERIOD_S,
        )

    def longest_wait(self, seconds: float) -> float:
        """How long a waiter may sleep: `seconds`, or less if it must poll."""
        return min(seconds, POLL_PERIOD_S) if self.works is False else seconds
