"""Locks as they are often written, each with a flaw of the literature, which the judge has to convict.

They write the same history as interlock's own, and are blocking. Their leases believe in their ttl from
before the request was sent, as interlock's do: what convicts them is the flaw alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {
    "nolock": "lock.NoLock",
    "naive": "redis.Naive",
    "careless": "redis.Careless",
    "counting": "redis.Counting",
    "onecounter": "redis.OneCounter",
    "twosteps": "redis.TwoSteps",
    "earlyunlock": "redis.EarlyUnlock",
    "naiveetcd": "etcd.NaiveEtcd",
    "carelessetcd": "etcd.CarelessEtcd",
    "naiverow": "postgresql.NaiveRow",
    "naivemysql": "mysql.NaiveMysql",
    "rowforever": "mysql.RowForEver",
    "naivezookeeper": "zookeeper.NaiveZooKeeper",
    "pinged": "zookeeper.Pinged",
}
"""By the name of its kind, in which module each is: only that module's client library is needed."""


def naive_lock(kind: str) -> Any:
    """The class of this kind; its module is imported only now."""
    module, _, name = _WHERE[kind].partition(".")
    return getattr(import_module(f"{__name__}.{module}"), name)


def is_naive(kind: str) -> bool:
    """Whether a kind of workers is a naive lock; else it is a face of interlock."""
    return kind in _WHERE


ASIDE = {"N2", "N8"}
"""Rules that each naive lock breaks: without tokens all have 0, and nobody is told of a loss."""
