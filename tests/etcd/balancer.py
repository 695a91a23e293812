"""A balancer: one address for several members."""

from __future__ import annotations

from itertools import cycle

from tests.storm.way import Way


class Balancer(Way):
    """Each new connection goes to the next of the members at which it is aimed."""

    def __init__(self, *ports: int) -> None:
        self.aim(*ports)
        super().__init__(ports[0])

    def aim(self, *ports: int) -> None:
        """Send new connections to these in turn, beginning with the first."""
        self._ports = cycle(ports)

    def choose_target(self) -> int:
        return next(self._ports)
