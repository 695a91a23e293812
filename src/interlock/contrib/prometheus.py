"""Metrics for Prometheus: a listener that keeps them in a registry of `prometheus_client`.

    from interlock.contrib.prometheus import Metrics

    client = interlock.connect(url, listener=Metrics())

Several clients may share one `Metrics`, if it is told apart which store each uses: `Metrics(store="orders")`.
Where a program forks (gunicorn, Celery), set PROMETHEUS_MULTIPROC_DIR as prometheus_client asks for: gauges
are summed over the living processes.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from interlock.contrib.measures import ALL, Classify, Count, Labels, Level, Measure, Observer

try:
    import prometheus_client
except ImportError as missing:
    raise ImportError("prometheus_client is not installed: pip install 'interlock[prometheus]'") from missing

SEVERAL_PROCESSES = "PROMETHEUS_MULTIPROC_DIR" in os.environ or "prometheus_multiproc_dir" in os.environ
"""Then numbers are kept in files that all processes share, and nobody is asked."""

_instruments: dict[int, dict[str, Any]] = {}  # by the id of a registry: no name can be registered twice
_mutex = threading.Lock()


class Metrics(Observer):
    """A listener for `connect(listener=...)`.

    - `store`: the value of the label `store`, which tells several clients of one program apart.
    - `classify`: makes the label `class` of a name; without it, it is the template of a decorator's name.
    - `registry`: that of prometheus_client, unless another one is given.
    """

    def __init__(
        self,
        store: str = "",
        *,
        classify: Classify | None = None,
        registry: prometheus_client.CollectorRegistry | None = None,
    ) -> None:
        instruments = _instruments_of(prometheus_client.REGISTRY if registry is None else registry)

        def make(measure: Measure, labels: Labels) -> Count:
            child = instruments[measure.name].labels(*labels)
            if measure.kind == "gauge" and not SEVERAL_PROCESSES:
                return _level_of(child)
            count: Count = child.observe if measure.kind == "histogram" else child.inc
            return count

        super().__init__(make, store, classify)


def _level_of(gauge: Any) -> Level:
    """A number that the library asks for when it is scraped, which costs a pair less than to tell it."""
    level = getattr(gauge, "interlock_level", None)  # of another client with the same labels
    if level is None:
        level = gauge.interlock_level = Level()
        gauge.set_function(lambda: level.now)
    found: Level = level
    return found


def _instruments_of(registry: prometheus_client.CollectorRegistry) -> dict[str, Any]:
    with _mutex:
        found = _instruments.get(id(registry))
        if found is None:
            found = _instruments[id(registry)] = {one.name: _instrument(one, registry) for one in ALL}
        return found


def _instrument(measure: Measure, registry: prometheus_client.CollectorRegistry) -> Any:
    """The instrument, named as Prometheus does: `interlock_acquire_duration_seconds`."""
    name = measure.name.replace(".", "_") + ("_seconds" if measure.unit == "s" else "")
    options: dict[str, Any] = {"labelnames": measure.labels, "registry": registry}
    if measure.kind == "histogram":
        return prometheus_client.Histogram(name, measure.help, buckets=measure.buckets, **options)
    if measure.kind == "counter":
        return prometheus_client.Counter(name, measure.help, **options)
    return prometheus_client.Gauge(name, measure.help, multiprocess_mode="livesum", **options)
