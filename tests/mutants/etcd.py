"""Deliberate bugs in the store on etcd: of what it takes to use one key for many claims."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Tests, mutant

CLAIMING = "backends/etcd/algorithm/claiming.py"
SESSIONS = "backends/etcd/algorithm/sessions.py"


def reused(names: str) -> Tests:
    return Tests("tests/etcd/test_key_reuse.py", names)


MUTANTS: list[Mutant] = [
    mutant(
        "etcd: a release deletes whatever stands at its key",
        "a release that arrives late removes the next holder's claim, and two hold the lock",
        (CLAIMING, 'compared(created_at(mine, created)) if created else b""', 'b""'),
        tests=reused("arrives_twice"),
    ),
    mutant(
        "etcd: whatever stands at its key is the claim itself",
        "a claim takes what an earlier request left for its own, with a token that was used before",
        (
            "backends/etcd/algorithm/view.py",
            "return found if found is not None and found.claim_id == id else None",
            "return found",
        ),
        tests=reused("not_taken_for_the_next_one"),
    ),
    mutant(
        "etcd: a key is used again whether or not its requests were answered",
        "a request that arrives late meets the next claim at that key",
        (SESSIONS, "again=again and own.answered", "again=again"),
        tests=reused("without_an_answer"),
    ),
    mutant(
        "etcd: an old revision is believed after a claim had no answer",
        "a claim that entered anew is not removed by its release, and nobody can lock until its client ends",
        (SESSIONS, "own.answered, own.created = False, 0", "own.answered = False"),
        tests=reused("entered_anew"),
    ),
    mutant(
        "etcd: a renewal removes what it does not know without comparing",
        "the next holder's claim is removed, if it came between the look and the removal",
        (CLAIMING, "txn([created_at(key, found.created)], [delete_op(key)])", "txn([], [delete_op(key)])"),
        tests=reused("compared_in_the_same_step"),
    ),
    mutant(
        "etcd: a renewal removes what it does not know without a look",
        "a claim that entered after the keys were listed is removed",
        (CLAIMING, "if found.lease == session.lease and (own is None or own.key != key):", "if found:"),
        tests=reused("looked_at_first or in_another_now"),
    ),
    mutant(
        "etcd: any deletion of the key ahead is the end of the claim ahead",
        "a waiter at a member that lags behind gets in beside the holder",
        (
            "backends/etcd/algorithm/waiting.py",
            "if group.hit[group.numbers[1]] <= place.created:",
            "if False:",
        ),
        tests=reused("lets_nobody_in"),
    ),
    mutant(
        "etcd: a list of keys counts for claims that came after it",
        "a holder that was evicted is told that its lease was renewed",
        (
            "backends/etcd/algorithm/renewing.py",
            "len(renewals) >= BULK and newest <= session.listed",
            "len(renewals) >= BULK",
        ),
        tests=reused("list_of_keys"),
    ),
    mutant(
        "etcd: a claim that is asked for is forgotten because it was gone",
        "a waiter enters again and gets in, and the next renewal removes its key as nobody's",
        (SESSIONS, "own.answered and not own.asking and", "own.answered and"),
        tests=reused("asked_for_again"),
    ),
]
