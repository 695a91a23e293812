"""Deliberate bugs where threads, tasks and processes meet: owners, permits, barriers, conditions."""

from __future__ import annotations

from tests.mutants.mutant import Code, Mutant, Tests, mutant

BARRIER = "_core/barrier.py"
CONDITION = "_core/condition.py"


def dying(names: str) -> Tests:
    return Tests("tests/simulation/test_deaths.py", names)


def owned(names: str) -> Tests:
    return Tests("tests/faces/test_owners.py", names)


def named(names: str) -> Tests:
    return Tests("tests/faces/test_names_from_arguments.py", names)


MUTANTS: list[Mutant] = [
    mutant(
        "a claim whose answer was lost counts as refused",
        "everybody waits for its ttl, though the store takes it back as soon as its disk has room",
        Code("_core/attempt.py", "Attempt.ask", "self._refused = not stood", "self._refused = True"),
        tests=Tests("tests/attacks/test_refused.py", "one_that_may_stand"),
    ),
    mutant(
        "a semaphore over another name has the gifts of the first",
        "one host's stray release widens the semaphore of another host",
        Code(
            "_core/semaphore.py",
            "SemaphoreHolding.renamed",
            "other.gift, other.gifted, other._going = (0, {}, set())",
            "other.gifted, other._going = ({}, set())",
        ),
        tests=named("not_known_to_another"),
    ),
    mutant(
        "an object's address is part of a name",
        "each worker has a lock of its own, and all of them ship the order",
        Code(
            "_core/names.py",
            "checked_name",
            "if ' at 0x' in name and (found := re.search(_ADDRESS, name)):\n    ...",
            "if ' at 0y' in name and (found := re.search(_ADDRESS, name)):\n    ...",
        ),
        tests=named("makes_no_name"),
    ),
    mutant(
        "the dead count at a barrier",
        "whoever comes next passes alone",
        Code(
            BARRIER,
            "Visit._listed",
            "arrived: list[str | None] = [id if id in living else None for id in state['arrived']]",
            "arrived: list[str | None] = list(state['arrived'])",
        ),
        tests=dying("dead_do_not_count"),
    ),
    mutant(
        "nobody looks after the action of a barrier",
        "all wait for a process that was killed",
        Code(BARRIER, "Visit._look_after", "if actor not in standings:\n    ...", "if False:\n    ..."),
        tests=dying("death_in_the_action"),
    ),
    mutant(
        "a party that was paused passes with those who counted without it",
        "more pass than the barrier has parties",
        Code(
            BARRIER,
            "Visit.run",
            "if await self._leave() is GONE and (not self._sure):\n    ...",
            "if await self._leave() is GONE and False:\n    ...",
        ),
        tests=dying("told_if_the_others"),
    ),
    mutant(
        "a notification leaves no call",
        "a killed waiter swallows it, and the living wait for ever",
        Code(CONDITION, "ConditionCore.wake", "others = len(waiting) > count", "others = False"),
        tests=dying("notification"),
    ),
    mutant(
        "a call that was taken is not renewed",
        "a waiter that needs long to get the lock is passed over",
        Code(CONDITION, "Wait._notified", "self._client.keeper.keep(call)", ""),
        tests=dying("needs_long"),
    ),
    mutant(
        "a release does not set apart what it gives back",
        "two releases give back the same lease, and a permit stays behind",
        Code(
            "_core/semaphore.py",
            "SemaphoreHolding._reserve",
            "leases = [lease for lease in self.leases if lease not in self._going]",
            "leases = [lease for lease in self.leases]",
        ),
        tests=Tests("tests/attacks/test_semaphore_releases.py", "two_tasks"),
    ),
    mutant(
        "the task that runs acquire owns the lease",
        "what wait_for took is not renewed, and cannot be released",
        Code(
            "_core/holding.py",
            "Holding.attempt",
            "owner = owner or runtime.owner()",
            "owner = runtime.owner()",
        ),
        tests=owned("renewed_for_its_caller"),
    ),
    mutant(
        "a lease whose owner has ended has lapsed like any other",
        "its holder looks for the fault in the network",
        Code(
            "_core/lease.py",
            "Lease._lapse",
            "if self._orphaned and (not self._owner.alive()):\n    ...",
            "if False:\n    ...",
        ),
        tests=owned("says_so"),
    ),
    mutant(
        "a generator function may be decorated",
        "its body runs when the lock has been given back, and everybody else is inside at the same time",
        Code(
            "blocking.py",
            "_Decorator.__call__",
            "decorated.refuse_generator(function, decorated.LOCK_INSIDE)",
            "pass",
        ),
        tests=Tests("tests/faces/test_refused_functions.py", "a_sync_lock_refuses and generator"),
    ),
    mutant(
        "lost leases are forgotten without a count",
        "who has lost two gives back another's with the second release",
        Code(
            "_core/holding.py",
            "Holding._forget_losses",
            "self.older[lease] = self.older.pop(before, 0) + self.weight(before)",
            "self.older[lease] = 0",
        ),
        tests=Tests("tests/attacks/test_after_a_loss.py", "lost_twice"),
    ),
]
