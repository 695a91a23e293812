"""Deliberate bugs in the store on ZooKeeper: of the rules that its own design needs, and no other store has."""

from __future__ import annotations

from tests.mutants.mutant import Code, Mutant, Tests, mutant

RULE = "backends/zookeeper/deadline_rule.py"
PATHS = "backends/zookeeper/paths.py"
CLAIMS = "backends/zookeeper/claims.py"
RELEASES = "backends/zookeeper/releases.py"
RENEWALS = "backends/zookeeper/renewals.py"
STORE = "backends/zookeeper/store.py"
WAITS = "backends/zookeeper/waits.py"


def waiting(names: str) -> Tests:
    return Tests("tests/zookeeper/test_waiting.py", names)


def crowds(names: str) -> Tests:
    return Tests("tests/zookeeper/test_crowds.py", names)


MUTANTS: list[Mutant] = [
    mutant(
        "zookeeper: a list that was made before counts as one of now",
        "a lease is believed to last longer than the servers have said",
        Code(
            RENEWALS,
            "Renewals._standing_paths",
            "listed, asked = (frozenset[str](), asked) if listing is None else (listing.paths, listing.asked)",
            "listed, asked = (frozenset[str](), asked) if listing is None else (listing.paths, asked)",
        ),
        tests=Tests("tests/zookeeper/test_sessions.py", "use_one_list"),
    ),
    mutant(
        "zookeeper: who is not in the list is gone",
        "a lease is lost because it was taken after its session was listed",
        Code(
            RENEWALS,
            "Renewals._standing_paths",
            "others = [path for path in known if path not in listed]",
            "others = [] if listed else known",
        ),
        tests=Tests("tests/zookeeper/test_sessions.py", "use_one_list"),
    ),
    mutant(
        "zookeeper: a session may name more claims than the servers can read",
        "a client with 40,000 leases dies, and the leader that wrote this down cannot be started again",
        Code(CLAIMS, "", "MAX_BUFFER_PART = 0.95", "MAX_BUFFER_PART = 9.5"),
        tests=Tests("tests/zookeeper/test_sessions.py", "grow_so_large"),
    ),
    mutant(
        "zookeeper: permits that are given back need no room",
        "a session of semaphores names nearly twice as much as the servers can read",
        Code(
            CLAIMS,
            "size_of_marker",
            "return size_of(f'{folder}/{shrunk_node(claim.id, claim.permits)}') if claim.permits > 1 else 0",
            "return size_of(f'{folder}/{shrunk_node(claim.id, claim.permits)}') * 0",
        ),
        tests=Tests("tests/zookeeper/test_sessions.py", "given_back"),
    ),
    mutant(
        "zookeeper: nobody is told of who was let in",
        "a semaphore has a free place, and the next in the queue sleeps on",
        Code(
            "backends/zookeeper/own_claims.py",
            "OwnClaim.must_touch",
            "return self.waited and 1 < self.claim.capacity < EVERYTHING",
            "return False and 1 < self.claim.capacity < EVERYTHING",
        ),
        tests=waiting("second_only_watches_the_first"),
    ),
    mutant(
        "zookeeper: a waiter does not watch itself",
        "a claim that an operator has removed gets in when the holder leaves",
        Code(
            WAITS,
            "Waits._read_by_path",
            "listening = bell.arm([*paths[:2], *paths[-1:]])",
            "listening = bell.arm([paths[0], *paths[2:][-1:]])",
        ),
        tests=waiting("evicted_just_before"),
    ),
    mutant(
        "zookeeper: whoever was watched was the only one ahead",
        "two hold a lock after a waiter between them has given up",
        Code(
            WAITS,
            "Waits._read_ahead",
            "if not own.ahead:\n    ...",
            "if not near or near[-1].node in gone:\n    ...",
        ),
        tests=crowds("those_between"),
    ),
    mutant(
        "zookeeper: the first of a crowd does not look at itself",
        "a waiter that was evicted while it slept behind another one of its client is let in",
        Code(WAITS, "Waits._read_ahead", "if not self._stands(own, bell):\n    return GONE", ""),
        tests=crowds("evicted_waiter_is_not_let_in"),
    ),
    mutant(
        "zookeeper: a list is right for ever",
        "a claim that lingers in the place of another is not seen by those who have listed the queue before",
        Code(
            WAITS,
            "Waits._read_by_path",
            (
                "if path == own.folder and answer.error is None and (answer.get()[1].version != version):\n"
                "    ..."
            ),
            "if path == own.folder and answer.error is None and False:\n    ...",
        ),
        tests=crowds("lingers_between"),
    ),
    mutant(
        "zookeeper: nobody hears of a claim that lingers",
        "min_hold does not keep out those who wait already",
        Code(
            "backends/zookeeper/bell.py",
            "Bell.__call__",
            "self.armed.discard(event.path)",
            "self.armed.difference_update(self.deleted)",
        ),
        tests=crowds("min_hold"),
    ),
    mutant(
        "zookeeper: whoever is let in stays in line",
        "readers wait for each other, for ever",
        Code(CLAIMS, "Claims._grant", "self._ledger.leave_crowd(own)", ""),
        tests=crowds("share_one_look"),
    ),
    mutant(
        "zookeeper: a waiter that was removed is waited for",
        "a lock lies idle although others of the same client wait for it",
        Code(CLAIMS, "Claims._behind_ours", "if ahead is None:\n    ...", "if False:\n    ..."),
        tests=crowds("holds_up_nobody"),
    ),
    mutant(
        "zookeeper: a list that is under way counts for those who came after it was sent",
        "a claim does not find itself in the queue, and enters again",
        Code(
            "backends/zookeeper/queue_reads.py",
            "QueueReads._join",
            "if before.following is None:\n    before.following = QueueRead(next(self._numbers), now)",
            (
                "before.signals.append(signal)\n"
                "return before\n"
                "if before.following is None:\n"
                "    before.following = QueueRead(next(self._numbers), now)"
            ),
        ),
        tests=crowds("sent_before"),
    ),
    mutant(
        "zookeeper: every claim of a crowd is sent at once",
        "a renewal waits behind ten thousand claims",
        Code(
            "backends/zookeeper/send_slots.py",
            "SendSlots.take",
            "if len(given) < MAX_CLAIMS_SENT:\n    ...",
            "if True:\n    ...",
        ),
        tests=crowds("no_turn_in_its_time"),  # not "flood": a quick server hides it
    ),
    mutant(
        "zookeeper: a loop that sleeps counts as awake",
        "a request is sent with the next heartbeat, seconds later",
        Code("backends/zookeeper/wire.py", "ready", "one.asleep = True", "one.asleep = False"),
        tests=Tests("tests/zookeeper/test_wire.py", "sleeps_is_woken"),
    ),
    mutant(
        "zookeeper: a claim counts whatever its number is",
        "after 2^31 claims on one name all have the same number, and several hold the lock",
        Code(PATHS, "Place.counts", "return 0 <= self.sequence < MAX_SEQUENCE", "return True"),
        tests=Tests("tests/zookeeper/test_counter.py", "old_folder"),
    ),
    mutant(
        "zookeeper: a claim that does not count is found again",
        "one whose answer was lost is granted beside others with the same number",
        Code(
            CLAIMS,
            "Claims._resume",
            (
                "if own is None and claim_node.counts and (content[1].ephemeralOwner == session.number):\n    ..."
            ),
            "if own is None and content[1].ephemeralOwner == session.number:\n    ...",
        ),
        tests=Tests("tests/zookeeper/test_counter.py", "answer_was_lost"),
    ),
    mutant(
        "zookeeper: a folder without numbers is one for ever",
        "a client stays away from a lock whose folder another one has made anew",
        Code(
            CLAIMS,
            "Claims._worn",
            "if stat is not None and stat.czxid == self._session_client.worn.get(folder):\n    ...",
            "if stat is not None and folder in self._session_client.worn:\n    ...",
        ),
        tests=Tests("tests/zookeeper/test_counter.py", "old_folder"),
    ),
    mutant(
        "zookeeper: a session counts from its last write",
        "a client of a follower that is cut off believes in its locks after the leader has ended its session",
        Code(
            RULE,
            "ConfirmedWrites.confirm",
            "while unproved and unproved[0][1] + self._apart <= sent:\n    ...",
            "while unproved:\n    ...",
        ),
        tests=Tests("tests/zookeeper/test_deadline_rule.py"),
    ),
    mutant(
        "a dead server is tried three times",
        "a first call takes three times connect_timeout",
        Code(
            "_core/attempt.py",
            "Attempt.ask",
            (
                "if (tries >= MAX_CLAIM_TRIES or self._unreachable(failure)) and (not self._queues()) or self.left() <= 0:\n"
                "    ..."
            ),
            "if tries >= MAX_CLAIM_TRIES and (not self._queues()) or self.left() <= 0:\n    ...",
        ),
        tests=Tests("tests/zookeeper/test_connections.py", "dead"),
    ),
    mutant(
        "zookeeper: a dropped client keeps its thread",
        "every client that is not closed costs a thread, two sockets and a session for good",
        Code(
            STORE,
            "ZooKeeperStore.__init__",
            "finalize(self, session_client.stop_soon).atexit = False",
            "pass",
        ),
        tests=Tests("tests/zookeeper/test_connections.py", "session_of_a_dropped"),
    ),
    mutant(
        "zookeeper: any length of a reply is believed",
        "a rogue server takes all memory of the program",
        Code(
            "backends/zookeeper/wire.py",
            "Wire.recv",
            "if most > MAX_REPLY_BYTES:\n    ...",
            "if False:\n    ...",
        ),
        tests=Tests("tests/zookeeper/test_hostile.py", "a_long_reply"),
    ),
]
