"""Deliberate bugs in the store on etcd: of what it takes to use one key for many claims, and to have many claims at once."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Tests, mutant

CLAIMING = "backends/etcd/algorithm/claiming.py"
SESSIONS = "backends/etcd/algorithm/sessions.py"
WAITING = "backends/etcd/algorithm/waiting.py"
CROWDS = "backends/kit/crowds.py"


def reused(names: str) -> Tests:
    return Tests("tests/etcd/test_key_reuse.py", names)


def crowds(names: str) -> Tests:
    return Tests("tests/etcd/test_crowds.py", names)


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
    mutant(
        "etcd: a member counts that has not seen those ahead enter",
        "the first waiter of a crowd is let in beside the holder, by a member that lags behind",
        (
            WAITING,
            "if answer.revision >= place.created:\n            break  # it has seen",
            "if True:\n            break  # it has seen",
        ),
        tests=crowds("has_not_seen"),
    ),
    mutant(
        "etcd: whoever was read last was ahead of nobody",
        "a claim that has just entered a long queue counts as the first of it",
        (CROWDS, "front.listed[front.start : place]", "front.listed[:0]"),
        tests=crowds("front_of_a_queue"),
    ),
    mutant(
        "etcd: a claim that stands elsewhere is still waited for",
        "the waiters of a client wait for each other, for ever",
        (SESSIONS, "if own is not None and own.created == first[0]:", "if own is not None:"),
        tests=crowds("holds_up_nobody"),
    ),
    mutant(
        "etcd: the next of a crowd is not woken",
        "a lock lies idle although many wait for it",
        (CROWDS, "for woken in (id, *(first for _, first in self._order[:1])):", "for woken in (id,):"),
        tests=crowds("is_woken"),
    ),
    mutant(
        "etcd: a reader looks at the keys before those of readers alone",
        "a reader is let in beside another program's lock",
        (
            "backends/etcd/algorithm/view.py",
            "for part in ((first, readers), (behind, end))",
            "for part in ((first, readers), (first, readers))",
        ),
        tests=crowds("stranger"),
    ),
    mutant(
        "etcd: every claim of a crowd is sent at once",
        "a thousand claims bury the server, and leases are lost",
        ("backends/etcd/wire/http2.py", "if patient and len(self._streams) >= CROWD:", "if False:"),
        tests=Tests("tests/etcd/test_http2.py", "patient"),
    ),
    mutant(
        "etcd: a connected caller waits for connect_timeout",
        "an acquire with 0.3 s takes as long as connecting may take, when its member fails",
        ("backends/etcd/algorithm/side.py", "min(extra, max(AGAIN, AS_BEFORE * transport.took))", "extra"),
        tests=Tests("tests/etcd/test_deadlines.py", "connected_caller"),
    ),
    mutant(
        "etcd: a member that was slow once is far away for ever",
        "every call on that connection may be late by as much",
        ("backends/etcd/transport/line.py", "if 2 * (now - sent) < self.least:", "if False:"),
        tests=Tests("tests/etcd/test_deadlines.py", "slow_once"),
    ),
]
