"""What scenarios have in common that need no server: locks in one file, data in another."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from interlock.lab.scenario import Scenario
from interlock.lab.stage import Stage
from interlock.lab.witness import store_of
from interlock.lab.worker import KEY


class SqliteScenario(Scenario):
    """A scenario on this machine alone, with a small shop as the resource."""

    needs = "none"

    def prepare(self, shop: sqlite3.Connection) -> None:
        """Make the tables of the shop."""

    def where(self, stage: Stage) -> dict[str, Any]:
        """The settings by which a client finds locks and shop; the shop is made."""
        path = stage.folder / "shop.db"
        with closing(sqlite3.connect(path)) as shop, shop:
            self.prepare(shop)
        return {"url": self._url(stage), "shop": str(path), "folder": str(stage.folder)}

    def watch(self, stage: Stage) -> None:
        """Write down what the lock file says from now on."""
        stage.witness(store_of(self._url(stage), KEY))

    def _url(self, stage: Stage) -> str:
        return f"sqlite:///{stage.folder}/locks.db"
