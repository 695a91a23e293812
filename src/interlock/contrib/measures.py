"""What can be measured of a client, and how an event becomes numbers.

Labels have few values: the store, the kind of lock, and the class of its name. A class is the template of a
decorator's name (`ship:{order_id}`), or what the user's own function says; never the name itself, of which
there are as many as orders. After 200 classes, further ones are called `other`.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple, Protocol

from interlock import events

ACQUIRE_BUCKETS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1, 2.5, 5, 10, 30, 60, 300, 1800),
)
HOLD_BUCKETS = (0.001, 0.01, 0.1, 1, 5, 10, 30, 60, 300, 900, 3600, 14400)
MARGIN_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
MOST_CLASSES = 200
OTHER = "other"

Classify = Callable[[str], str]


class Measure(NamedTuple):
    """One instrument: its name as OpenTelemetry writes it, its kind, unit, labels and buckets."""

    name: str
    kind: str  # counter, gauge or histogram
    help: str
    labels: tuple[str, ...]
    unit: str = ""
    buckets: tuple[float, ...] = ()


ABOUT = ("store", "kind", "class")

ACQUIRE = Measure(
    "interlock.acquire.duration",
    "histogram",
    "seconds from a call to its lease, or to its end without one",
    (*ABOUT, "outcome"),
    "s",
    ACQUIRE_BUCKETS,
)
HOLD = Measure(
    "interlock.hold.duration",
    "histogram",
    "seconds that leases were held",
    (*ABOUT, "end"),
    "s",
    HOLD_BUCKETS,
)
LEASES = Measure("interlock.leases", "gauge", "leases that this process holds now", ABOUT)
WAITING = Measure("interlock.waiting", "gauge", "callers of this process that wait now", ABOUT)
LOSSES = Measure("interlock.lease.losses", "counter", "leases that were lost while held", (*ABOUT, "cause"))
RENEWAL = Measure(
    "interlock.renewal.duration",
    "histogram",
    "seconds that the store took to answer a renewal, or to be given up",
    ("store", "answer"),
    "s",
    ACQUIRE_BUCKETS,
)
MARGIN = Measure(
    "interlock.renewal.margin",
    "histogram",
    "share of the ttl that was left when a renewal was asked for; two thirds on a healthy client",
    ("store",),
    "",
    MARGIN_BUCKETS,
)
LAG = Measure(
    "interlock.keeper.lag",
    "histogram",
    "seconds by which renewals began late",
    ("store",),
    "s",
    ACQUIRE_BUCKETS,
)
LEADING = Measure(
    "interlock.election.leading", "gauge", "whether this process leads an election", ("store", "class")
)
ERRORS = Measure("interlock.errors", "counter", "calls that ended with an error", (*ABOUT, "error"))

ALL = (ACQUIRE, HOLD, LEASES, WAITING, LOSSES, RENEWAL, MARGIN, LAG, LEADING, ERRORS)

Labels = tuple[str, ...]


class Classes:
    """The classes of names, with a bound on how many there are."""

    def __init__(self, classify: Classify | None) -> None:
        self._classify = classify
        self._known: set[str] = set()

    def of(self, resource: str, template: str) -> str:
        """The class of a resource; "" without a template and a function that knows."""
        said = template if self._classify is None else str(self._classify(resource))
        if said in self._known:
            return said
        if len(self._known) >= MOST_CLASSES:
            return OTHER
        self._known.add(said)
        return said


class Count(Protocol):
    """Takes a number for one instrument with certain labels: `observe` of a histogram, `inc` of a counter."""

    def __call__(self, number: float, /) -> object: ...


Make = Callable[[Measure, Labels], Count]


class Level:
    """Ups and downs, which threads may count at the same time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._mutex = Lock()

    def __call__(self, number: float, /) -> None:
        with self._mutex:
            self.now += number


class OneKind:
    """The instruments of one kind of lock and one class of names.

    A pair of acquire and release uses three of them: each is an attribute, because to look it up in the
    library costs more than to count.
    """

    def __init__(self, make: Make, about: Labels) -> None:
        self._make, self._about = make, about
        self._others: dict[tuple[str, str], Count] = {}
        self.acquired = make(ACQUIRE, (*about, "acquired"))
        self.released = make(HOLD, (*about, "released"))
        self.leases = make(LEASES, about)
        self.waiting = make(WAITING, about)
        self.leading = make(LEADING, (about[0], about[2])) if about[1] == "election" else None

    def other(self, measure: Measure, label: str) -> Count:
        """An instrument with one label more, such as the cause of a loss."""
        found = self._others.get((measure.name, label))
        if found is None:
            found = self._others[measure.name, label] = self._make(measure, (*self._about, label))
        return found

    def end(self) -> None:
        """A lease has ended."""
        self.leases(-1)
        if self.leading is not None:
            self.leading(-1)


class Observer:
    """A listener that turns events into numbers, for instruments that `make` makes."""

    def __init__(self, make: Make, store: str, classify: Classify | None) -> None:
        self._make, self._store = make, store
        self._classes = Classes(classify)
        self._kinds: dict[tuple[str, str], OneKind] = {}
        self._handlers: dict[type, Callable[[Any], None]] = {
            events.Acquired: self._on_acquired,
            events.Released: self._on_released,
            events.Lost: self._on_lost,
            events.Renewed: self._on_renewed,
            events.Queued: self._on_queued,
            events.TimedOut: self._on_timed_out,
            events.Skipped: self._on_skipped,
            events.AcquireFailed: self._on_acquire_failed,
            events.KeeperLagged: self._on_keeper_lagged,
        }
        self._renewals: dict[str, Count] = {}
        self._margin = make(MARGIN, (store,))
        self._lag = make(LAG, (store,))

    def __call__(self, event: events.Event) -> None:
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    def _of(self, kind: str, resource: str, template: str) -> OneKind:
        key = kind, self._classes.of(resource, template)
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = OneKind(self._make, (self._store, *key))
        return found

    def _on_acquired(self, event: events.Acquired) -> None:
        found = self._of(event.kind, event.resource, event.template)
        found.acquired(event.waited)
        found.leases(1)
        if event.queued:
            found.waiting(-1)
        if found.leading is not None:
            found.leading(1)

    def _on_released(self, event: events.Released) -> None:
        found = self._of(event.kind, event.resource, event.template)
        found.released(event.held)
        found.end()

    def _on_lost(self, event: events.Lost) -> None:
        found = self._of(event.kind, event.resource, event.template)
        found.other(HOLD, "evicted" if event.cause == "evicted" else "lost")(event.held)
        found.other(LOSSES, event.cause)(1)
        found.end()

    def _on_renewed(self, event: events.Renewed) -> None:
        count = self._renewals.get(event.answer)
        if count is None:
            count = self._renewals[event.answer] = self._make(RENEWAL, (self._store, event.answer))
        count(event.took)
        self._margin(event.margin)

    def _on_queued(self, event: events.Queued) -> None:
        self._of(event.kind, event.resource, event.template).waiting(1)

    def _on_timed_out(self, event: events.TimedOut) -> None:
        found = self._of(event.kind, event.resource, event.template)
        found.other(ACQUIRE, "timed_out")(event.waited)
        if event.queued:
            found.waiting(-1)

    def _on_skipped(self, event: events.Skipped) -> None:
        self._of("once", event.resource, event.template).other(ACQUIRE, "skipped")(event.waited)

    def _on_acquire_failed(self, event: events.AcquireFailed) -> None:
        found = self._of(event.kind, event.resource, event.template)
        found.other(ACQUIRE, "cancelled" if event.cancelled else "error")(event.waited)
        if not event.cancelled:
            found.other(ERRORS, event.error)(1)
        if event.queued:
            found.waiting(-1)

    def _on_keeper_lagged(self, event: events.KeeperLagged) -> None:
        self._lag(event.seconds)
