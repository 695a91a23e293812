"""Deliberate bugs in the store on ZooKeeper: of the rules that its own design needs, and no other store has."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Tests, mutant

RULE = "backends/zookeeper/deadline_rule.py"
STORE = "backends/zookeeper/store.py"
WAITING = "backends/zookeeper/waiting.py"


def waiting(names: str) -> Tests:
    return Tests("tests/zookeeper/test_waiting.py", names)


def crowds(names: str) -> Tests:
    return Tests("tests/zookeeper/test_crowds.py", names)


MUTANTS: list[Mutant] = [
    mutant(
        "zookeeper: a list that was made before counts as one of now",
        "a lease is believed to last longer than the servers have said",
        (STORE, "(listing.paths, listing.asked)", "(listing.paths, asked)"),
        tests=Tests("tests/zookeeper/test_sessions.py", "use_one_list"),
    ),
    mutant(
        "zookeeper: who is not in the list is gone",
        "a lease is lost because it was taken after its session was listed",
        (
            STORE,
            "others = [path for path in known if path not in listed]",
            "others = [] if listed else known",
        ),
        tests=Tests("tests/zookeeper/test_sessions.py", "use_one_list"),
    ),
    mutant(
        "zookeeper: a session may name more claims than the servers can read",
        "a client with 40,000 leases dies, and the leader that wrote this down cannot be started again",
        (STORE, "ROOM = 0.95", "ROOM = 9.5"),
        tests=Tests("tests/zookeeper/test_sessions.py", "grow_so_large"),
    ),
    mutant(
        "zookeeper: permits that are given back need no room",
        "a session of semaphores names nearly twice as much as the servers can read",
        (STORE, "if claim.permits > 1 else 0", "* 0"),
        tests=Tests("tests/zookeeper/test_sessions.py", "given_back"),
    ),
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
            WAITING,
            "listening = bell.arm([*paths[:2], *paths[-1:]])",
            "listening = bell.arm([paths[0], *paths[2:][-1:]])",
        ),
        tests=waiting("evicted_just_before"),
    ),
    mutant(
        "zookeeper: whoever was watched was the only one ahead",
        "two hold a lock after a waiter between them has given up",
        (WAITING, "if not entry.ahead:\n", "if not near or near[-1].node in gone:\n"),
        tests=crowds("those_between"),
    ),
    mutant(
        "zookeeper: the first of a crowd does not look at itself",
        "a waiter that was evicted while it slept behind another one of its client is let in",
        (
            WAITING,
            "        if not self._stands(entry, bell):\n            return GONE\n        line.left(gone)",
            "        line.left(gone)",
        ),
        tests=crowds("evicted_waiter_is_not_let_in"),
    ),
    mutant(
        "zookeeper: a list is right for ever",
        "a claim that lingers in the place of another is not seen by those who have listed the queue before",
        (WAITING, "answer.get()[1].version != version", "False"),
        tests=crowds("lingers_between"),
    ),
    mutant(
        "zookeeper: nobody hears of a claim that lingers",
        "min_hold does not keep out those who wait already",
        (
            "backends/zookeeper/bell.py",
            "self.armed.discard(event.path)",
            "self.armed.difference_update(self.deleted)",
        ),
        tests=crowds("min_hold"),
    ),
    mutant(
        "zookeeper: whoever is let in stays in line",
        "readers wait for each other, for ever",
        (
            STORE,
            "self._ledger.leave_line(entry)\n            if entry.must_touch():",
            "if entry.must_touch():",
        ),
        tests=crowds("share_one_look"),
    ),
    mutant(
        "zookeeper: a waiter that was removed is waited for",
        "a lock lies idle although others of the same client wait for it",
        (STORE, "if ahead is None:  # it was removed", "if False:  # it was removed"),
        tests=crowds("holds_up_nobody"),
    ),
    mutant(
        "zookeeper: a list that is under way counts for those who came after it was sent",
        "a claim does not find itself in the queue, and enters again",
        (
            "backends/zookeeper/looks.py",
            "if before is not None and now < before.began + OVERDUE:\n",
            "if before is not None and now < before.began + OVERDUE:\n                before.signals.append(signal)\n                return before\n",
        ),
        tests=crowds("sent_before"),
    ),
    mutant(
        "zookeeper: every claim of a crowd is sent at once",
        "a renewal waits behind ten thousand claims",
        ("backends/zookeeper/turns.py", "            if len(given) < AT_ONCE:\n", "            if True:\n"),
        tests=crowds("no_turn_in_its_time"),  # not "flood": a quick server hides it
    ),
    mutant(
        "zookeeper: a loop that sleeps counts as awake",
        "a request is sent with the next heartbeat, seconds later",
        ("backends/zookeeper/wire.py", "one.asleep = True  # before", "one.asleep = False  # before"),
        tests=Tests("tests/zookeeper/test_wire.py", "sleeps_is_woken"),
    ),
    mutant(
        "zookeeper: a session counts from its last write",
        "a client of a follower that is cut off believes in its locks after the leader has ended its session",
        (RULE, "while unproved and unproved[0][1] + self.timeout * APART <= sent:", "while unproved:"),
        tests=Tests("tests/zookeeper/test_deadline_rule.py"),
    ),
]
