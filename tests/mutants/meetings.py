"""Deliberate bugs where threads, tasks and processes meet: owners, generators, permits, barriers, conditions."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Tests, mutant

BARRIER = "_core/barrier.py"
CONDITION = "_core/condition.py"


def dying(names: str) -> Tests:
    return Tests("tests/simulation/test_deaths.py", names)


def owned(names: str) -> Tests:
    return Tests("tests/faces/test_owners.py", names)


MUTANTS: list[Mutant] = [
    mutant(
        "the dead count at a barrier",
        "whoever comes next passes alone",
        (
            BARRIER,
            '[id if id in living else None for id in state["arrived"]]',
            'list(state["arrived"])',
        ),
        tests=dying("dead_do_not_count"),
    ),
    mutant(
        "nobody looks after the action of a barrier",
        "all wait for a process that was killed",
        (BARRIER, "            if actor not in standings:", "            if False:"),
        tests=dying("death_in_the_action"),
    ),
    mutant(
        "a party that was paused passes with those who counted without it",
        "more pass than the barrier has parties",
        (BARRIER, "is GONE and not self._sure:", "is GONE and False:"),
        tests=dying("told_if_the_others"),
    ),
    mutant(
        "a notification leaves no call",
        "a killed waiter swallows it, and the living wait for ever",
        (CONDITION, "others = len(waiting) > count", "others = False"),
        tests=dying("notification"),
    ),
    mutant(
        "a call that was taken is not renewed",
        "a waiter that needs long to get the lock is passed over",
        (CONDITION, "            self._client.keeper.keep(call)\n", ""),
        tests=dying("needs_long"),
    ),
    mutant(
        "a release does not set apart what it gives back",
        "two releases give back the same lease, and a permit stays behind",
        ("_core/semaphore.py", " if lease not in self._going]", "]"),
        tests=Tests("tests/attacks/test_semaphore_releases.py", "two_tasks"),
    ),
    mutant(
        "the task that runs acquire owns the lease",
        "what wait_for took is not renewed, and cannot be released",
        (
            "_core/holding.py",
            "        owner = owner or runtime.owner()\n",
            "        owner = runtime.owner()\n",
        ),
        tests=owned("renewed_for_its_caller"),
    ),
    mutant(
        "a lease whose owner has ended has lapsed like any other",
        "its holder looks for the fault in the network",
        ("_core/lease.py", "elif self._orphaned and not self._owner.alive():", "elif False:"),
        tests=owned("says_so"),
    ),
    mutant(
        "a generator runs its body when the lock has been given back",
        "everybody else is inside at the same time",
        (
            "blocking.py",
            'if generators.kind_of(function) == "generator function":',
            "if False:",
        ),
        tests=Tests("tests/faces/test_generators.py", "test_a_generator_holds"),
    ),
    mutant(
        "the lease of a generator belongs to the thread of its first step",
        "it is lost when that thread ends, in the middle of the iteration",
        ("_runtime/generators.py", "        self._own(self._owner)\n", "        pass\n"),
        tests=Tests("tests/faces/test_generators.py", "in_any_thread"),
    ),
    mutant(
        "lost leases are forgotten without a count",
        "who has lost two gives back another's with the second release",
        ("_core/holding.py", "self.older.pop(before, 0) + self.weight(before)", "0"),
        tests=Tests("tests/attacks/test_after_a_loss.py", "lost_twice"),
    ),
]
