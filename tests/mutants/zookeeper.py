"""Deliberate bugs in the store on ZooKeeper: of the rules that its own design needs, and no other store has."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Tests, mutant

RULE = "backends/zookeeper/deadline_rule.py"
STORE = "backends/zookeeper/store.py"


def waiting(names: str) -> Tests:
    return Tests("tests/zookeeper/test_waiting.py", names)


MUTANTS: list[Mutant] = [
    mutant(
        "zookeeper: nobody is told of who was let in",
        "a semaphore has a free place, and the next in the queue sleeps on",
        (
            "backends/zookeeper/entry.py",
            "return self.waited and 1 < self.claim.capacity",
            "return False and 1 < self.claim.capacity",
        ),
        tests=waiting("second_only_watches_the_first"),
    ),
    mutant(
        "zookeeper: a waiter does not watch itself",
        "a claim that an operator has removed gets in when the holder leaves",
        (
            STORE,
            "asked = [requests.get_data(path, bell) for path in (entry.path, *watched)]",
            "asked = [requests.get_data(entry.path), *(requests.get_data(path, bell) for path in watched)]",
        ),
        tests=waiting("evicted_just_before"),
    ),
    mutant(
        "zookeeper: whoever was watched was the only one ahead",
        "two hold a lock after a waiter between them has given up",
        (
            STORE,
            "if entry.ahead != 1 or watched[0] not in bell.deleted:",
            "if watched[0] not in bell.deleted:",
        ),
        tests=waiting("neighbour_gives_up"),
    ),
    mutant(
        "zookeeper: a session counts from its last write",
        "a client of a follower that is cut off believes in its locks after the leader has ended its session",
        (RULE, "while unproved and unproved[0][1] + self.timeout * APART <= sent:", "while unproved:"),
        tests=Tests("tests/zookeeper/test_deadline_rule.py"),
    ),
    mutant(
        "zookeeper: the loop looks at the queue before it forgets that it was woken",
        "a request that comes while the loop wakes up is sent with the next heartbeat, seconds later",
        (
            "backends/zookeeper/wire.py",
            "        for one in wakers:\n            one.asleep = False\n            if one.fileno() in found:\n                one.heard()\n        readable = [one for one in readers if one.pending() or _has_come(one, found)]\n",
            "        readable = [one for one in readers if one.pending() or _has_come(one, found)]\n        for one in wakers:\n            one.asleep = False\n            if one.fileno() in found:\n                one.heard()\n",
        ),
        tests=Tests("tests/zookeeper/test_wire.py"),
    ),
]
