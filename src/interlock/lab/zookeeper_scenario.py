"""What scenarios on three ZooKeeper servers have in common."""

from __future__ import annotations

from typing import Any

from interlock.lab.scenario import Scenario
from interlock.lab.stage import Stage
from interlock.lab.witness import Held, Look, View, store_of
from interlock.lab.worker import KEY
from interlock.lab.worker_process import WorkerProcess


class ZooKeeperScenario(Scenario):
    """A scenario on an ensemble; a session is as long as the ttl."""

    needs = "zookeeper"

    def client(self, stage: Stage, name: str, *stops_at: str, **settings: Any) -> WorkerProcess:
        """A client of the ensemble that stops at these points."""
        hosts = settings.pop("hosts", stage.servers.hosts)
        where = {"url": self._url(stage, hosts), "hosts": hosts}
        return stage.client(name, stops_at=stops_at, **where, **settings)

    def watch(self, stage: Stage, hosts: str = "") -> None:
        """Write down what the ensemble, or these servers of it, say from now on."""
        hosts = hosts or stage.servers.hosts
        stage.witness(_node(hosts) if stage.naive else store_of(self._url(stage, hosts), KEY))

    def _url(self, stage: Stage, hosts: str) -> str:
        return f"zookeeper://{hosts}/lab?session_timeout={stage.ttl:g}"


def _node(hosts: str) -> Look:
    """Read what stands in the node of naive locks."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import NoNodeError

    server: Any = KazooClient(hosts)
    server.start()

    def look() -> Held | None:
        try:
            value, _ = server.get("/lock")
        except NoNodeError:
            return None
        return Held(value.decode())

    def close() -> None:
        server.stop()
        server.close()

    return View(look, close)
