"""Metrics for OpenTelemetry: a listener that records them with the API package.

    from interlock.contrib.opentelemetry import Metrics

    client = interlock.connect(url, listener=Metrics())

Only the API is imported: without an SDK, nothing is recorded and little is paid.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from interlock.contrib.measures import ALL, Classify, Count, Labels, Level, Measure, Observer

try:
    from opentelemetry import metrics
except ImportError as missing:
    raise ImportError("opentelemetry is not installed: pip install 'interlock[opentelemetry]'") from missing

Attributes = dict[str, str]


class Metrics(Observer):
    """A listener for `connect(listener=...)`.

    - `store`: the value of `interlock.store`, which tells several clients of one program apart.
    - `classify`: makes `interlock.class` of a name; without it, it is the template of a decorator's name.
    - `meter_provider`: the global one, unless another one is given.
    """

    def __init__(
        self,
        store: str = "",
        *,
        classify: Classify | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        meter = metrics.get_meter("interlock", meter_provider=meter_provider)
        self._instruments = {one.name: _instrument(one, meter) for one in ALL}
        super().__init__(self._count, store, classify)

    def _count(self, measure: Measure, labels: Labels) -> Count:
        names = [f"interlock.{label}" for label in measure.labels]
        count: Count = self._instruments[measure.name].count(dict(zip(names, labels, strict=True)))
        return count


class _Asked:
    """A number that goes up and down, and is told when the SDK collects: that costs a pair nothing."""

    def __init__(self, measure: Measure, meter: metrics.Meter) -> None:
        self._levels: list[tuple[Attributes, Level]] = []
        meter.create_observable_up_down_counter(measure.name, [self._observe], "1", measure.help)

    def count(self, attributes: Attributes) -> Count:
        level = Level()
        self._levels.append((attributes, level))
        return level

    def _observe(self, options: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        return [metrics.Observation(level.now, attributes) for attributes, level in list(self._levels)]


class _Told:
    """A histogram or a counter."""

    def __init__(self, tell: Any) -> None:
        self._tell = tell

    def count(self, attributes: Attributes) -> Count:
        return partial(self._tell, attributes=attributes)


def _instrument(measure: Measure, meter: metrics.Meter) -> _Asked | _Told:
    unit = measure.unit or "1"
    if measure.kind == "gauge":
        return _Asked(measure, meter)
    if measure.kind == "counter":
        return _Told(meter.create_counter(measure.name, unit, measure.help).add)
    histogram = meter.create_histogram(
        measure.name, unit, measure.help, explicit_bucket_boundaries_advisory=measure.buckets
    )
    return _Told(histogram.record)
