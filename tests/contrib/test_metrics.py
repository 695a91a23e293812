"""Metrics of a client: each event changes the numbers that it should, in prometheus_client and in OpenTelemetry."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import prometheus_client
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import interlock
from interlock import events
from interlock.contrib import opentelemetry, prometheus
from interlock.contrib.measures import ALL, MOST_CLASSES, OTHER, Classes
from interlock.testing.patience import until
from tests.house.source import SRC

Values = Callable[..., float]


class OfPrometheus:
    """Reads numbers as a scrape would."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()

    def listener(self, **options: Any) -> Callable[[events.Event], object]:
        return prometheus.Metrics("s", registry=self.registry, **options)

    def value(self, name: str, **labels: str) -> float:
        sample = name.replace(".", "_")
        for suffix in ("_seconds_count", "_count", "_total", ""):
            found = self.registry.get_sample_value(sample + suffix, {"store": "s", **labels})
            if found is not None:
                return found
        return 0.0


class OfOpenTelemetry:
    """Reads numbers as an exporter would."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader])

    def listener(self, **options: Any) -> Callable[[events.Event], object]:
        return opentelemetry.Metrics("s", meter_provider=self.provider, **options)

    def value(self, name: str, **labels: str) -> float:
        wanted = {f"interlock.{label}": value for label, value in {"store": "s", **labels}.items()}
        data: Any = self.reader.get_metrics_data()
        if data is None:
            return 0.0
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            for point in metric.data.data_points if metric.name == name else ():
                if dict(point.attributes) == wanted:
                    return float(getattr(point, "count", getattr(point, "value", 0)))
        return 0.0


Sink = OfPrometheus | OfOpenTelemetry
LOCK = {"kind": "lock", "class": ""}


@pytest.fixture(params=[OfPrometheus, OfOpenTelemetry])
def sink(request: pytest.FixtureRequest) -> Sink:
    made: Sink = request.param()
    return made


def connected(sink: Sink, **options: Any) -> interlock.Client:
    return interlock.connect(f"memory://{uuid4().hex}", listener=sink.listener(**options), log=False)


def test_a_pair_counts_once_on_each_side(sink: Sink) -> None:
    with connected(sink) as client:
        with client.lock("x"):
            assert sink.value("interlock.leases", **LOCK) == 1
        assert sink.value("interlock.acquire.duration", **LOCK, outcome="acquired") == 1
        assert sink.value("interlock.hold.duration", **LOCK, end="released") == 1
        assert sink.value("interlock.leases", **LOCK) == 0


def test_a_caller_that_waits_is_counted_while_it_does(sink: Sink) -> None:
    with connected(sink) as client:
        lease = client.lock("x").acquire()
        assert lease
        waiter = threading.Thread(target=lambda: client.lock("x").acquire())
        waiter.start()
        until(lambda: sink.value("interlock.waiting", **LOCK) == 1)
        lease.release()
        waiter.join()
        until(lambda: sink.value("interlock.waiting", **LOCK) == 0)
        assert sink.value("interlock.acquire.duration", **LOCK, outcome="acquired") == 2


@pytest.mark.parametrize(("timeout", "blocking"), [(0.05, True), (-1, False)])
def test_a_caller_that_gives_up_is_an_outcome(sink: Sink, timeout: float, blocking: bool) -> None:
    with connected(sink) as client, client.lock("x"):
        other = threading.Thread(target=lambda: client.lock("x").acquire(blocking, timeout))
        other.start()
        other.join()
        assert sink.value("interlock.acquire.duration", **LOCK, outcome="timed_out") == 1
        assert sink.value("interlock.waiting", **LOCK) == 0


def test_a_skipped_job_is_an_outcome(sink: Sink) -> None:
    with connected(sink) as client, client.lock("job"):
        assert not client.once("job")(lambda: None)()
        assert sink.value("interlock.acquire.duration", kind="once", **{"class": ""}, outcome="skipped") == 1


def test_a_cancelled_caller_is_an_outcome(sink: Sink) -> None:
    async def main() -> None:
        url = f"memory://{uuid4().hex}"
        async with interlock.aio.connect(url, listener=sink.listener(), log=False) as client:
            async with client.lock("x"):
                waiting = asyncio.create_task(client.lock("x").acquire())
                while sink.value("interlock.waiting", **LOCK) != 1:
                    await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting

    asyncio.run(main())
    assert sink.value("interlock.acquire.duration", **LOCK, outcome="cancelled") == 1
    assert sink.value("interlock.waiting", **LOCK) == 0
    assert sink.value("interlock.leases", **LOCK) == 0


def test_a_loss_counts_by_its_cause(sink: Sink) -> None:
    with connected(sink) as client:
        lease = client.lock("x", ttl=5).acquire()
        assert lease
        client.evict("x", reason="for a test")
        with pytest.raises(interlock.LeaseLost):
            lease.renew()
        until(lambda: sink.value("interlock.lease.losses", **LOCK, cause="evicted") == 1)
        assert sink.value("interlock.hold.duration", **LOCK, end="evicted") == 1
        assert sink.value("interlock.leases", **LOCK) == 0


def test_a_renewal_tells_its_margin(sink: Sink) -> None:
    with connected(sink) as client:
        lease = client.lock("x", ttl=60).acquire()
        assert lease
        lease.renew()
        assert sink.value("interlock.renewal.duration", answer="renewed") == 1
        assert sink.value("interlock.renewal.margin") == 1


def test_leading_an_election_is_a_level(sink: Sink) -> None:
    with connected(sink) as client:
        election = client.election("leader")
        election.campaign("me")
        assert sink.value("interlock.election.leading", **{"class": ""}) == 1
        election.resign()
        assert sink.value("interlock.election.leading", **{"class": ""}) == 0


def test_a_name_from_arguments_counts_by_its_template(sink: Sink) -> None:
    with connected(sink) as client:

        @client.lock("ship:{order_id}")
        def ship(order_id: int) -> None: ...

        for order in range(3):
            ship(order)
        of_ship = {"kind": "lock", "class": "ship:{order_id}"}
        assert sink.value("interlock.acquire.duration", **of_ship, outcome="acquired") == 3


def test_a_users_function_names_the_class(sink: Sink) -> None:
    with connected(sink, classify=lambda name: name.partition("/")[0]) as client:
        for number in range(3):
            with client.lock(f"orders/{number}"):
                pass
        about = {"kind": "lock", "class": "orders"}
        assert sink.value("interlock.acquire.duration", **about, outcome="acquired") == 3


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda client: client.rlock("x"), "rlock"),
        (lambda client: client.rwlock("x").read(), "read"),
        (lambda client: client.rwlock("x").write(), "write"),
        (lambda client: client.semaphore("x", capacity=2), "semaphore"),
    ],
)
def test_each_kind_of_lock_is_named(sink: Sink, make: Callable[[Any], Any], kind: str) -> None:
    with connected(sink) as client:
        with make(client):
            pass
        assert sink.value("interlock.acquire.duration", kind=kind, **{"class": ""}, outcome="acquired") == 1


def test_there_are_no_more_classes_than_the_bound() -> None:
    classes = Classes(lambda name: name)
    found = {classes.of(f"name-{number}", "") for number in range(10 * MOST_CLASSES)}
    assert len(found) == MOST_CLASSES + 1
    assert OTHER in found


def test_two_clients_share_one_registry() -> None:
    sink = OfPrometheus()
    with connected(sink) as one, connected(sink) as other, one.lock("x"), other.lock("x"):
        assert sink.value("interlock.leases", **LOCK) == 2


def test_every_measure_is_exposed_with_its_unit() -> None:
    registry = prometheus_client.CollectorRegistry()
    prometheus.Metrics(registry=registry)
    exposed = prometheus_client.generate_latest(registry).decode()
    for measure in ALL:
        name = measure.name.replace(".", "_") + ("_seconds" if measure.unit == "s" else "")
        assert f"# TYPE {name}" in exposed


FORKS = """
import os, sys
import interlock
from interlock.contrib.prometheus import Metrics

client = interlock.connect("sqlite:///" + sys.argv[1], listener=Metrics())
pids = []
for number in range(3):
    pid = os.fork()
    if not pid:
        for _ in range(5):
            with client.lock(f"x{number}"):
                pass
        held = client.lock(f"held{number}").acquire()
        print("held", flush=True)
        sys.stdin.readline()
        os._exit(0)
    pids.append(pid)
for pid in pids:
    os.waitpid(pid, 0)
"""


def test_processes_that_fork_are_counted_together(tmp_path: Path) -> None:
    """As below gunicorn and Celery: each worker keeps its numbers in files, and a scrape adds them up."""
    folder = tmp_path / "metrics"
    folder.mkdir()
    env = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder), "PYTHONPATH": str(SRC)}
    argv = [sys.executable, "-c", FORKS, str(tmp_path / "locks.db")]
    with subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert [program.stdout.readline() for _ in range(3)] == ["held\n"] * 3
        read = (
            "import prometheus_client as p, prometheus_client.multiprocess as m\nr = p.CollectorRegistry()\n"
        )
        read += "m.MultiProcessCollector(r)\nprint(p.generate_latest(r).decode())"
        told = subprocess.run(
            [sys.executable, "-c", read], env=env, capture_output=True, text=True, check=True
        )
        program.communicate("\n\n\n")
    told_lines = [line.rpartition(" ") for line in told.stdout.splitlines() if not line.startswith("#")]
    lines = {name: value for name, _, value in told_lines}
    about = 'class="",kind="lock",'
    acquired = f'interlock_acquire_duration_seconds_count{{{about}outcome="acquired",store=""}}'
    assert float(lines[acquired]) == 18
    leases = [value for name, value in lines.items() if name.startswith("interlock_leases{")]
    assert sum(map(float, leases)) == 3
