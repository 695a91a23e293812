"""The scenarios, each in a file of its own, in the order of the story that they tell together."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module

from interlock.errors import InterlockError
from interlock.lab.scenario import Scenario

NAMES = (
    "no-lock",
    "crash-before-del",
    "error-before-del",
    "expire-lost-client",
    "expire-lost-network",
    "expire-lost-server",
    "ttl-too-short",
    "strangers-lock",
    "get-then-del",
    "watchdog-for-the-dead",
    "early-unlock",
    "same-identity",
    "hash-with-counter",
    "two-dead-of-five",
    "hung-node",
    "slow-quorum",
    "lost-reply",
    "pause-before-counting",
    "node-forgets",
    "delayed-restart",
    "clock-jump",
    "clock-back",
    "fast-clock",
    "poll-or-push",
    "one-server-dies",
    "failover",
    "split-brain",
    "gc-pause",
    "zk-session",
    "zk-silence",
    "zk-crash",
    "zk-herd",
    "etcd-pause",
    "etcd-leader-dies",
    "etcd-partition",
    "etcd-herd",
    "etcdctl-beside-us",
    "row-for-ever",
    "cleaner",
    "two-way-replication",
    "standby-promoted",
    "check-at-write-only",
    "mark-and-compare",
    "cannot-refuse",
    "version-instead",
    "flash-sale",
)
"""The names, from the first mistake that people make to the last."""


class UnknownScenario(InterlockError, ValueError):
    """No scenario has this name; the sentence has the nearest."""

    def __init__(self, name: str) -> None:
        near = get_close_matches(name, NAMES, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else "`interlock lab list` shows all"
        super().__init__(f"there is no scenario {name!r}: {hint}")
        self.name = name


def load(name: str) -> Scenario:
    """The scenario with this name; its module is imported only now."""
    if name not in NAMES:
        raise UnknownScenario(name)
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    found = next(
        made
        for made in vars(module).values()
        if isinstance(made, type) and issubclass(made, Scenario) and made.__module__ == module.__name__
    )
    return found()
