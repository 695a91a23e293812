"""Deliberate bugs in the store on etcd: of what it takes to use one key for many claims, and to have many claims at once."""

from __future__ import annotations

from tests.mutants.mutant import Code, Mutant, Tests, mutant

RELEASES = "backends/etcd/algorithm/releases.py"
SESSIONS = "backends/etcd/algorithm/sessions.py"
WAITS = "backends/etcd/algorithm/waits.py"
CROWDS = "backends/kit/crowds.py"


def reused(names: str) -> Tests:
    return Tests("tests/etcd/test_key_reuse.py", names)


def crowds(names: str) -> Tests:
    return Tests("tests/etcd/test_crowds.py", names)


MUTANTS: list[Mutant] = [
    mutant(
        "etcd: a read confirms who leads",
        "a leader that was replaced confirms the claims of its clients, and its successor's holders have them, too",
        Code(
            "backends/etcd/algorithm/keeping.py",
            "_confirmed",
            "after = TxnAnswer(await connection.call(messages.TXN, proof, _time(connection, deadline))).header.term",
            "after = messages.RangeAnswer.of(await connection.call(messages.RANGE, messages.get(side.keys.never), _time(connection, deadline))).header.term",
        ),
        tests=Tests("tests/etcd/test_stale_read.py"),
    ),
    mutant(
        "etcd: a lease that an earlier try has made is taken for a stranger's",
        "a caller is told that the store is unfit because an answer was lost",
        Code(
            "backends/etcd/algorithm/keeping.py",
            "grant_lease",
            "if not unsure:\n    raise",
            "raise",
        ),
        tests=Tests("tests/etcd/test_lost_answers.py", "grant_was_not_answered"),
    ),
    mutant(
        "etcd: a write whose answer was lost is sent again in silence",
        "three times one more makes four",
        Code(
            "backends/etcd/algorithm/registers.py",
            "_write",
            "side.txn(txn([compare_mod_revision(key, version)], [put_op(put(key, register_value(id, value), lease))], [get_op(get(key))]), deadline, again=False)",
            "side.txn(txn([compare_mod_revision(key, version)], [put_op(put(key, register_value(id, value), lease))], [get_op(get(key))]), deadline, again=True)",
        ),
        tests=Tests("tests/etcd/test_lost_answers.py", "a_write_whose_answer"),
    ),
    mutant(
        "etcd: a repeated eviction does not know its own work",
        "an operator is told that the eviction met nobody",
        Code(
            "backends/etcd/algorithm/operators.py",
            "_removed",
            "return answer.succeeded or bool(answer.ranged(0).kvs)",
            "return answer.succeeded",
        ),
        tests=Tests("tests/etcd/test_lost_answers.py", "names_its_victim"),
    ),
    mutant(
        "etcd: a guarded write does not depend on what its call has seen",
        "a late copy puts an old value over a newer one",
        Code(
            "guards/etcd.py",
            "_Guard._write",
            "request = messages.txn([seen], writes, [messages.get_op(look)])",
            "request = messages.txn([], writes, [messages.get_op(look)])",
        ),
        tests=Tests("tests/etcd/test_lost_answers.py", "newer_one"),
    ),
    mutant(
        "etcd: every caller logs in by itself",
        "a server that hashes a hundred passwords renews no lease",
        Code(
            "backends/etcd/transport/credentials.py",
            "Credentials.take_lead",
            "if now < self._busy_until:\n    ...",
            "if False:\n    ...",
        ),
        tests=Tests("tests/etcd/test_login.py", "many_tasks"),
    ),
    mutant(
        "etcd: the refusal of a watch is dropped",
        "a waiter whose token has expired looks every 5 s",
        Code("backends/etcd/wire/watching.py", "WatchStream.on_message", "self._refused()", "pass"),
        tests=Tests("tests/etcd/test_login.py", "names_no_watch"),
    ),
    mutant(
        "etcd: nobody watches the session",
        "a holder whose lease was revoked believes in it until its next renewal",
        Code("backends/etcd/algorithm/renewals.py", "renew", "watch_session(side, session)", "pass"),
        tests=Tests("tests/etcd/test_session_watch.py", "a_holder_whose_lease"),
    ),
    mutant(
        "etcd: a renewal removes the key of its session",
        "the watch for the end of the session wakes with every renewal",
        Code(
            "backends/etcd/algorithm/renewals.py",
            "_tidy",
            "known = {side.keys.session(session.lease), *(own.key for _, own in side.sessions.claims_of(session))}",
            "known = {*(own.key for _, own in side.sessions.claims_of(session))}",
        ),
        tests=Tests("tests/etcd/test_session_watch.py", "stays"),
    ),
    mutant(
        "etcd: a release deletes whatever stands at its key",
        "a release that arrives late removes the next holder's claim, and two hold the lock",
        Code(
            RELEASES,
            "_removal",
            "compare = compared(compare_create_revision(mine, created)) if created else b''",
            "compare = b''",
        ),
        tests=reused("arrives_twice"),
    ),
    mutant(
        "etcd: whatever stands at its key is the claim itself",
        "a claim takes what an earlier request left for its own, with a token that was used before",
        Code(
            "backends/etcd/algorithm/queue_view.py",
            "QueueView.own",
            "return found if found is not None and found.claim_id == id else None",
            "return found",
        ),
        tests=reused("not_taken_for_the_next_one"),
    ),
    mutant(
        "etcd: a key is used again whether or not its requests were answered",
        "a request that arrives late meets the next claim at that key",
        Code(
            SESSIONS,
            "Sessions.leave",
            "self._names.free(own.name, again=again and own.answered)",
            "self._names.free(own.name, again=again)",
        ),
        tests=reused("without_an_answer"),
    ),
    mutant(
        "etcd: an old revision is believed after a claim had no answer",
        "a claim that entered anew is not removed by its release, and nobody can lock until its client ends",
        Code(
            SESSIONS,
            "Sessions.leave_unanswered",
            "own.answered, own.created = (False, 0)",
            "own.answered = False",
        ),
        tests=reused("entered_anew"),
    ),
    mutant(
        "etcd: a renewal removes what it does not know without comparing",
        "the next holder's claim is removed, if it came between the look and the removal",
        Code(
            RELEASES,
            "withdraw",
            "await side.txn(txn([compare_create_revision(key, found.created)], [delete_op(key)]), deadline)",
            "await side.txn(txn([], [delete_op(key)]), deadline)",
        ),
        tests=reused("compared_in_the_same_step"),
    ),
    mutant(
        "etcd: a renewal removes what it does not know without a look",
        "a claim that entered after the keys were listed is removed",
        Code(
            RELEASES,
            "withdraw",
            "if found.lease == session.lease and (own is None or own.key != key):\n    ...",
            "if found:\n    ...",
        ),
        tests=reused("looked_at_first or in_another_now"),
    ),
    mutant(
        "etcd: any deletion of the key ahead is the end of the claim ahead",
        "a waiter at a member that lags behind gets in beside the holder",
        Code(
            "backends/etcd/algorithm/waits.py",
            "_told",
            "if group.hit[group.numbers[1]] <= place.created:\n    ...",
            "if False:\n    ...",
        ),
        tests=reused("lets_nobody_in"),
    ),
    mutant(
        "etcd: a list of keys counts for claims that came after it",
        "a holder that was evicted is told that its lease was renewed",
        Code(
            "backends/etcd/algorithm/renewals.py",
            "renew",
            "bulk = len(renewals) >= MIN_BULK_RENEWALS and newest <= session.listed",
            "bulk = len(renewals) >= MIN_BULK_RENEWALS",
        ),
        tests=reused("list_of_keys"),
    ),
    mutant(
        "etcd: a claim that is asked for is forgotten because it was gone",
        "a waiter enters again and gets in, and the next renewal removes its key as nobody's",
        Code(
            SESSIONS,
            "Sessions.leave_removed",
            (
                "if own is not None and own.answered and (not own.asking) and (own.entered <= listed):\n"
                "    ..."
            ),
            "if own is not None and own.answered and (own.entered <= listed):\n    ...",
        ),
        tests=reused("asked_for_again"),
    ),
    mutant(
        "etcd: a member counts that has not seen those ahead enter",
        "the first waiter of a crowd is let in beside the holder, by a member that lags behind",
        Code(WAITS, "_read_ahead", "if answer.revision >= place.created:\n    ...", "if True:\n    ..."),
        tests=crowds("has_not_seen"),
    ),
    mutant(
        "etcd: whoever was read last was ahead of nobody",
        "a claim that has just entered a long queue counts as the first of it",
        Code(
            CROWDS,
            "Crowd.ahead_of",
            "return [one for one in front.listed[front.start:place] if one[0] not in front.gone]",
            "return [one for one in front.listed[:0] if one[0] not in front.gone]",
        ),
        tests=crowds("front_of_a_queue"),
    ),
    mutant(
        "etcd: a claim that stands elsewhere is still waited for",
        "the waiters of a client wait for each other, for ever",
        Code(
            SESSIONS,
            "Sessions.behind_ours",
            "if own is not None and own.created == first[0]:\n    ...",
            "if own is not None:\n    ...",
        ),
        tests=crowds("holds_up_nobody"),
    ),
    mutant(
        "etcd: the next of a crowd is not woken",
        "a lock lies idle although many wait for it",
        Code(
            CROWDS,
            "Crowd.leave",
            "for woken in (id, *(first for _, first in self._order[:1])):\n    ...",
            "for woken in (id,):\n    ...",
        ),
        tests=crowds("is_woken"),
    ),
    mutant(
        "etcd: a reader looks at the keys before those of readers alone",
        "a reader is let in beside another program's lock",
        Code(
            "backends/etcd/algorithm/queue_view.py",
            "writers",
            "return [get_op(get(*part, serializable=serializable, max_create=max_create)) for part in ((first, readers), (behind, end))]",
            "return [get_op(get(*part, serializable=serializable, max_create=max_create)) for part in ((first, readers), (first, readers))]",
        ),
        tests=crowds("stranger"),
    ),
    mutant(
        "etcd: every claim of a crowd is sent at once",
        "a thousand claims bury the server, and leases are lost",
        Code(
            "backends/etcd/wire/http2.py",
            "Connection.request",
            "if low_priority and len(self._streams) >= MAX_STREAMS_BEFORE_QUEUE:\n    ...",
            "if False:\n    ...",
        ),
        tests=Tests("tests/etcd/test_http2.py", "low_priority"),
    ),
    mutant(
        "etcd: a connected caller waits for connect_timeout",
        "an acquire with a timeout of 0.3 s takes 5 s when its member fails",
        Code(
            "backends/etcd/algorithm/side.py",
            "Side._to_connect",
            "if not took:\n    ...",
            "if True:\n    ...",
        ),
        tests=Tests("tests/etcd/test_deadlines.py", "connect_timeout or hangs"),
    ),
    mutant(
        "etcd: a member that serves none of many short calls is never left",
        "whoever tries for half a second at a time, at a member that is cut off and goes on talking",
        Code(
            "backends/etcd/transport/connection.py",
            "MemberConnection.note_request",
            "if self.asked <= self.served:\n    self.asked = now",
            "self.asked = now",
        ),
        tests=Tests("tests/etcd/test_leaving.py", "short_calls"),
    ),
    mutant(
        "etcd: any length of a message is believed",
        "a rogue server takes all memory of the program",
        Code(
            "backends/etcd/wire/grpc.py",
            "Call.on_data",
            "if end - at >= 5 and after - at > MAX_MESSAGE_BYTES:\n    ...",
            "if end - at >= 5 and False:\n    ...",
        ),
        tests=Tests("tests/etcd/test_hostile.py", "a_long_message"),
    ),
    mutant(
        "etcd: the keeper does not repeat that a claim was let in",
        "the next waiter of a semaphore sleeps for a minute beside a free permit",
        Code(
            "backends/etcd/algorithm/renewals.py",
            "renew",
            "if side.sessions.let_in:\n    ...",
            "if False:\n    ...",
        ),
        tests=Tests("tests/etcd/test_let_in.py", "keeper"),
    ),
    mutant(
        "etcd: the confirmation of a closed watch counts as a refusal",
        "a waiter of a semaphore is told that the store is not available",
        Code(
            "backends/etcd/wire/watching.py",
            "WatchStream.on_message",
            "if answer.cancelled and (not 0 < answer.number < self._next):\n    ...",
            "if answer.cancelled and answer.number not in self._groups:\n    ...",
        ),
        tests=Tests("tests/etcd/test_login.py", "confirms_a_cancelled"),
    ),
    mutant(
        "etcd: a grpc-proxy is taken for a member",
        "every lease lapses after its ttl",
        Code(
            "backends/etcd/transport/cluster.py",
            "ClusterTransport._check_no_proxy",
            "if CANCELLED in str(error):\n    ...",
            "if False:\n    ...",
        ),
        tests=Tests("tests/etcd/test_proxy.py", "one_sentence"),
    ),
    mutant(
        "etcd: a member that was slow once is far away for ever",
        "every call on that connection may be late by as much",
        Code(
            "backends/etcd/transport/connection.py",
            "MemberConnection.note_answer",
            "if 2 * (now - sent) < self.least:\n    ...",
            "if False:\n    ...",
        ),
        tests=Tests("tests/etcd/test_leaving.py", "slow_once"),
    ),
    mutant(
        "etcd: the keeper's first connection looks at no more members than it needs",
        "two clients whose URLs name members of two clusters hold one lock",
        Code(
            "backends/etcd/transport/cluster.py",
            "ClusterTransport._found",
            "looks_at_all = self.for_keeper and not self._cluster and took <= MAX_NEAR_S",
            "looks_at_all = False",
        ),
        tests=Tests("tests/etcd/test_two_clusters.py", "by_name"),
    ),
    mutant(
        "etcd: a member of another cluster is taken at once",
        "two clients hold one lock after one of them has changed its member",
        Code(
            "backends/etcd/transport/cluster.py",
            "_Search.is_known",
            "return self._known in (0, self.cluster)",
            "return True",
        ),
        tests=Tests("tests/etcd/test_two_clusters.py", "as_long_as"),
    ),
]
