"""A command in the care of a warden, as the holder of the lease sees it."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import suppress

from interlock.cli import process_tree
from interlock.cli.warden import BLOCKED_SIGNALS, Duty, Warden
from interlock.errors import Unsupported

KILL_TIMEOUT_S = 1.0  # seconds with processes that do not even die of SIGKILL


class Command:
    """Orders go out, reports come in.

    Orders are single writes to a pipe, so any thread or handler may give them.
    """

    def __init__(self, warden: int, orders: int, reports: int) -> None:
        self._warden = warden
        self._orders = orders
        self._reports = reports
        self._buffer = b""

    @classmethod
    def prepare(cls, duty: Duty) -> Command:
        """Fork the warden. To be called before this process has threads: they would not come along."""
        if not hasattr(os, "fork"):
            raise Unsupported("interlock run needs fork(2), which this system lacks; use the library instead")
        prctl = process_tree.load_prctl()
        process_tree.adopt_orphans(prctl)  # of a warden that was killed
        orders_in, orders_out = os.pipe()
        reports_in, reports_out = os.pipe()
        mask = signal.pthread_sigmask(
            signal.SIG_BLOCK, BLOCKED_SIGNALS
        )  # a Ctrl-C must not meet a half-made warden
        warden = os.fork()
        if warden == 0:
            os.close(orders_out)  # or the warden would never see that the holder is gone
            os.close(reports_in)
            Warden(duty, orders_in, reports_out, mask, prctl).serve()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(orders_in)
        os.close(reports_out)
        return cls(warden, orders_out, reports_in)

    def start(self, token: int, deadline: float, liveness_byte: tuple[str, int] | None = None) -> None:
        """Start the command; `liveness_byte` of a file is locked for as long as the command lives."""
        locked = "" if liveness_byte is None else f" {os.fsencode(liveness_byte[0]).hex()} {liveness_byte[1]}"
        self._order(f"start {token} {deadline:.6f}{locked}")

    def extend(self, deadline: float) -> None:
        """The lease lives until `deadline`."""
        self._order(f"until {deadline:.6f}")

    def end(self) -> None:
        """The lease is gone: TERM now, KILL after the grace."""
        self._order("lost")

    def relay(self, number: int) -> None:
        """Pass a signal on to the command."""
        self._order(f"signal {number}")

    def reports(self, timeout: float) -> Iterator[list[str]]:
        """Yield the warden's reports, waiting at most `timeout` seconds for one; `gone` when the warden
        has died.
        """
        if not select.select([self._reports], [], [], timeout)[0]:
            return
        came = os.read(self._reports, 4096)
        if not came:
            yield ["gone"]
        *lines, self._buffer = (self._buffer + came).split(b"\n")
        yield from (line.decode("ascii").split() for line in lines)

    def kill(self) -> None:
        """Kill the warden and all below it: when it does not do its duty, having been stopped, or has been
        killed.
        """
        process_tree.send([self._warden], signal.SIGKILL)  # and with it, by PDEATHSIG, the command
        process_tree.kill_below(os.getpid(), KILL_TIMEOUT_S)

    def dismiss(self) -> None:
        """Let the warden go; it kills what still runs. Returns when it has gone."""
        os.close(self._orders)
        with suppress(ChildProcessError):  # our parent ignores SIGCHLD, and we inherited that
            os.waitpid(self._warden, 0)
        os.close(self._reports)

    def _order(self, line: str) -> None:
        try:
            os.write(self._orders, line.encode("ascii") + b"\n")
        except BrokenPipeError:
            pass  # the warden is gone: its last report says more
