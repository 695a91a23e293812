"""What scenarios on one Redis server have in common."""

from __future__ import annotations

from typing import Any

from interlock.lab.scenario import Scenario
from interlock.lab.stage import Stage
from interlock.lab.witness import redis_key
from interlock.lab.worker import KEY
from interlock.lab.worker_process import WorkerProcess


class RedisScenario(Scenario):
    """A scenario on one server, whose truth is one key."""

    needs = "redis"

    def where(self, stage: Stage) -> dict[str, Any]:
        """The settings by which a client finds the server, in both ways."""
        port = stage.servers.port
        return {"port": port, "url": f"redis://127.0.0.1:{port}"}

    def client(self, stage: Stage, name: str, *stops_at: str, **settings: Any) -> WorkerProcess:
        """A client of the server that stops at these points."""
        return stage.client(name, stops_at=stops_at, **{**self.where(stage), **settings})

    def watch(self, stage: Stage) -> None:
        """Write down what the key says from now on."""
        stage.witness(redis_key(stage.servers.port, KEY, stage.ttl))
