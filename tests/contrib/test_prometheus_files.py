"""The alert rules and the dashboard are fit for a real Prometheus, and every alert fires when it should."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from interlock.contrib.measures import ALL
from interlock.testing.patience import until
from interlock.testing.servers.process import find_program, free_port, start_program
from tests.house.source import SRC

FILES = files("interlock.contrib") / "prometheus_files"
RULES = (FILES / "rules.yml").read_text()
DASHBOARD: dict[str, Any] = json.loads((FILES / "dashboard.json").read_text())


def expressions() -> list[str]:
    """The queries of all panels."""
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]


def exposed() -> set[str]:
    """The names of all series that a program exposes."""
    found = set[str]()
    for measure in ALL:
        name = measure.name.replace(".", "_") + ("_seconds" if measure.unit == "s" else "")
        ends = ("_bucket", "_count", "_sum") if measure.kind == "histogram" else ("_total",)
        found |= {name} if measure.kind == "gauge" else {name + end for end in ends}
    return found


@pytest.mark.parametrize("text", [RULES, *expressions()])
def test_no_query_asks_for_a_series_that_there_is_not(text: str) -> None:
    assert set(re.findall(r"\binterlock_[a-z_]+", text)) <= exposed()


def test_every_measure_is_on_the_dashboard() -> None:
    shown = " ".join(expressions())
    assert [one.name for one in ALL if one.name.replace(".", "_") not in shown] == []


# -- a real Prometheus, on demand: it looks for some minutes ----------------------------------------

PROGRAM = """
import sys, threading, time
import prometheus_client
import interlock
from interlock import events
from interlock.contrib.prometheus import Metrics

metrics = Metrics(store="shop")
prometheus_client.start_http_server(int(sys.argv[1]), addr="127.0.0.1")
client = interlock.connect("memory://alerts", listener=metrics, log=False)

def healthy():
    while True:
        with client.lock("calm", ttl=3):
            time.sleep(2.5)
threading.Thread(target=healthy, daemon=True).start()
if sys.argv[2] == "trouble":
    lease = client.lock("lost", ttl=5).acquire()
    client.evict("lost", reason="an alert must fire")
    try:
        lease.renew()
    except interlock.LeaseLost:
        pass
    metrics(events.KeeperLagged(4.0))
    metrics(events.AcquireFailed("x", 0.1, "StoreUnavailable", False))
    metrics(events.Acquired("lead", 1, 0.0, False, "election"))
    metrics(events.Acquired("lead", 2, 0.0, False, "election"))
    gone = Metrics(store="elsewhere")
    gone(events.Acquired("lead", 1, 0.0, False, "election"))
    gone(events.Released("lead", 1, 5.0, "election"))
while True:
    if sys.argv[2] == "trouble":
        metrics(events.Acquired("slow", 1, 200.0, False, "lock"))
        metrics(events.Renewed("slow", 1, 0.01, 0.02, "renewed"))
    time.sleep(0.2)
"""
ALERTS = set(re.findall(r"alert: (\w+)", RULES))
EVERY_S = 1


class Prometheus:
    """A real server that scrapes one program every second, with our rules."""

    def __init__(self, folder: Path, target: int) -> None:
        self.port = free_port()
        shorter = RULES.replace("for: 1m", "for: 3s").replace("for: 15s", "for: 3s").replace("[5m]", "[20s]")
        (folder / "rules.yml").write_text(shorter.replace("offset 5m", "offset 2m"))
        (folder / "prometheus.yml").write_text(
            f"global: {{scrape_interval: {EVERY_S}s, evaluation_interval: {EVERY_S}s}}\n"
            "rule_files: [rules.yml]\n"
            f"scrape_configs: [{{job_name: shop, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}]\n"
        )
        self.process = start_program(
            [
                find_program("prometheus", "prometheus"),
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def get(self, path: str) -> Any:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return json.loads(answer.read()) if answer.status != 503 else None  # it still reads its files
        except OSError:
            return None
        finally:
            connection.close()

    def firing(self) -> set[str]:
        found = self.get("/api/v1/alerts")
        alerts = found["data"]["alerts"] if found else []
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)


def _serves(port: int) -> bool:
    with socket.socket() as probe:
        return not probe.connect_ex(("127.0.0.1", port))


@pytest.fixture
def scraped(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Prometheus]:
    port = free_port()
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(port), request.param], env={"PYTHONPATH": str(SRC)}
    )
    try:
        until(lambda: _serves(port))
        server = Prometheus(tmp_path, port)
        try:
            yield server
        finally:
            server.close()
    finally:
        program.kill()
        program.wait()


@pytest.mark.soak
@pytest.mark.parametrize("scraped", ["trouble"], indirect=True)
def test_every_alert_fires_and_every_panel_has_an_answer(scraped: Prometheus) -> None:
    until(lambda: scraped.firing() >= ALERTS, patience=120)
    for expression in expressions():
        asked = expression.replace("$store", ".*").replace("[5m]", "[20s]")
        answer = scraped.get(f"/api/v1/query?query={quote(asked)}")
        assert answer["status"] == "success", expression


@pytest.mark.soak
@pytest.mark.parametrize("scraped", ["calm"], indirect=True)
def test_no_alert_fires_while_all_is_well(scraped: Prometheus) -> None:
    until(lambda: scraped.get("/api/v1/alerts") is not None, patience=60)
    end = time.monotonic() + 90
    while time.monotonic() < end:
        assert scraped.firing() == set()
        threading.Event().wait(1.0)


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    (tmp_path / "rules.yml").write_text(RULES)
    told = subprocess.run([tool, "check", "rules", f"{tmp_path}/rules.yml"], capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
