"""What scenarios on etcd have in common. Naive programs speak to its JSON gateway, so that they are short."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any
from urllib.request import Request, urlopen

from interlock.lab.scenario import Scenario
from interlock.lab.stage import Stage
from interlock.lab.witness import Held, Look, store_of
from interlock.lab.worker import KEY
from interlock.lab.worker_process import WorkerProcess
from interlock.testing.patience import PATIENCE


class Etcd:
    """The few calls of etcd that a naive lock makes, over one member's JSON gateway."""

    def __init__(self, port: int, timeout: float = 5.0) -> None:
        self._url, self._timeout = f"http://127.0.0.1:{port}/v3", timeout
        self._revision = 0

    def call(self, path: str, **body: Any) -> dict[str, Any]:
        request = Request(f"{self._url}/{path}", json.dumps(body).encode())
        with urlopen(request, timeout=self._timeout) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def lease(self, seconds: float) -> str:
        """Make a lease that lives for so many seconds; its id."""
        return str(self.call("lease/grant", TTL=str(max(1, round(seconds))))["ID"])

    def create(self, key: str, value: str, lease: str = "0") -> bool:
        """Put a key if it does not exist; whether it was put."""
        name = _packed(key)
        absent = {"key": name, "target": "CREATE", "create_revision": "0"}
        put = {"request_put": {"key": name, "value": _packed(value), "lease": lease}}
        answer = self.call("kv/txn", compare=[absent], success=[put])
        self._revision = int(answer["header"]["revision"])
        return bool(answer.get("succeeded"))

    def await_change(self, key: str) -> None:
        """Return when the key has changed since `create` was last answered."""
        wanted = {"key": _packed(key), "start_revision": str(self._revision + 1)}
        request = Request(f"{self._url}/watch", json.dumps({"create_request": wanted}).encode())
        with urlopen(request, timeout=PATIENCE) as answer:
            for line in answer:
                if json.loads(line)["result"].get("events"):
                    return

    def get(self, key: str) -> str | None:
        found = self.call("kv/range", key=_packed(key)).get("kvs")
        return b64decode(found[0]["value"]).decode() if found else None

    def delete(self, key: str) -> None:
        self.call("kv/deleterange", key=_packed(key))


def _packed(text: str) -> str:
    return b64encode(text.encode()).decode()


class EtcdScenario(Scenario):
    """A scenario on three members."""

    needs = "etcd"

    def client(self, stage: Stage, name: str, *stops_at: str, **settings: Any) -> WorkerProcess:
        """A client of the cluster that stops at these points."""
        where = {"url": stage.servers.url(), "port": stage.servers.ports[0]}
        return stage.client(name, stops_at=stops_at, **{**where, **settings})

    def watch(self, stage: Stage) -> None:
        """Write down what the cluster says from now on."""
        look = _key(stage.servers.ports[0]) if stage.naive else store_of(stage.servers.url(), KEY)
        stage.witness(look)


def _key(port: int) -> Look:
    """Read what stands in the key of naive locks."""
    server = Etcd(port, timeout=1.0)

    def look() -> Held | None:
        value = server.get("lock")
        return Held(value) if value else None

    return look
