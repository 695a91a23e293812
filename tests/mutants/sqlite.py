"""Deliberate bugs in the lock file."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Tests, agreeing, mutant

CLAIMS = "backends/sql/sqlite/tables/claims.sql"
INODES = "backends/sql/sqlite/file/inodes.py"
LIVENESS = "backends/sql/sqlite/file/liveness.py"
ANSWERS = agreeing("answers_as_the_reference")
STORE = "backends/sql/sqlite/store.py"
DATABASE = "backends/sql/sqlite/file/database.py"
NOTIFIER = "backends/sql/sqlite/notifier.py"
HAND_OVER = "backends/sql/sqlite/tables/claims.py"
SNAPSHOT = Tests("tests/sqlite/test_interrupts.py", "old_snapshot")
READER = Tests("tests/sqlite/test_bell_reader.py", "grant")
WOKEN = Tests("tests/sqlite/test_waiting.py", "in_another_process or rings_only_the_next")

MUTANTS: list[Mutant] = [
    mutant(
        "sqlite: release without compare",
        "a stranger's release frees the holder's lock",
        (
            CLAIMS,
            "where resource = ? and id = ? and state = 1 and bell",
            "where resource = ? and ? is not null and state = 1 and bell",
        ),
        (CLAIMS, "where resource = ? and id <> ?)", "where resource = ? and id <> ? and 0)"),
        tests=ANSWERS,
    ),
    mutant(
        "sqlite: what lapsed can be renewed",
        "a holder that lapsed comes back",
        (CLAIMS, "state < 2\n  and lapses_at > :now and lapses_at", "state < 2\n  and lapses_at"),
        tests=ANSWERS,
    ),
    mutant(
        "sqlite: renewal may shorten",
        "a late, short renewal takes away what the holder counts on",
        (CLAIMS, "    lapses_at = max(lapses_at, :now + :ttl),", "    lapses_at = :now + :ttl,"),
        tests=ANSWERS,
    ),
    mutant(
        "sqlite: tokens follow the clock alone",
        "a clock set back gives a token twice",
        (
            "backends/sql/sqlite/tables/claims.py",
            "token = max(token, last + 1)",
            "token = max(token, 1)",
        ),
        (CLAIMS, "where last < ?\n", "where last < ? + 9000000000000000\n"),
        tests=ANSWERS,
    ),
    mutant(
        "sqlite: who is let in is not rung",
        "every hand-off waits for a lapse",
        (
            "backends/sql/sqlite/tables/queue.py",
            '        tx.execute(CLAIMS["admit"], (tx.now, resource, row.token))\n        tx.ring(row.bell, "c" + row.id)\n',
            '        tx.execute(CLAIMS["admit"], (tx.now, resource, row.token))\n',
        ),
        tests=WOKEN,
    ),
    mutant(
        "sqlite: who is let in the short way is not rung",
        "every hand-off between two processes waits for a poll",
        (HAND_OVER, '        tx.ring(next_bell, "c" + next_id)\n', ""),
        tests=WOKEN,
    ),
    mutant(
        "sqlite: the short way of a release rings its own bell first",
        "the next waits while the process that releases looks for waiters of its own",
        (
            HAND_OVER,
            "    tx.change(DROP, (resource, token))\n",
            '    tx.ring(bell, "c" + id)\n    tx.change(DROP, (resource, token))\n',
        ),
        tests=Tests("tests/sqlite/test_hand_over.py", "before_the_bell"),
    ),
    mutant(
        "sqlite: a grant that is being made is taken for the user's code",
        "SIGTERM ends the process there, and the claim is left behind",
        (
            "shutdown.py",
            'module.startswith(("interlock.", "namedtuple_"))',
            'module.startswith("namedtuple_")',
        ),
        tests=Tests("tests/attacks/test_signals.py", "any_call and hot"),
    ),
    mutant(
        "sqlite: a row that is being read is taken for the user's code",
        "SIGTERM ends the process inside a transaction, and nothing is released",
        (
            "shutdown.py",
            'module.startswith(("interlock.", "namedtuple_"))',
            'module.startswith("interlock.")',
        ),
        tests=Tests("tests/attacks/test_signals.py", "any_call and taken"),
    ),
    mutant(
        "sqlite: the short way of a release ignores what stands behind the next",
        "a lapsed row stays, and is counted",
        (HAND_OVER, "front[-1][3] is None", "front[0][3] is None"),
        tests=Tests("tests/sqlite/test_hand_over.py", "both_ways"),
    ),
    mutant(
        "sqlite: the short way of a release takes any holder for its own",
        "a stranger's release frees the holder's lock",
        (HAND_OVER, "if holder != id or state != IN", "if state != IN"),
        tests=Tests("tests/sqlite/test_hand_over.py", "both_ways"),
    ),
    mutant(
        "sqlite: a waiter that was rung takes that for a grant",
        "two hold the lock",
        (CLAIMS, " and state = 1 order by token limit 1", " order by token limit 1"),
        tests=READER,
    ),
    mutant(
        "sqlite: a grant is read from files that were replaced",
        "two hold the lock, one in each file",
        (
            DATABASE,
            "        if not self._identity.holds_still():\n            self._wait",
            "        if False:\n            self._wait",
        ),
        tests=READER,
    ),
    mutant(
        "sqlite: a grant that is read is counted from after the clock was asked about the row",
        "the holder goes on after its claim has lapsed",
        (
            STORE,
            "        asked = self._runtime.now()  # first: whatever is slow from here on must shorten the lease\n        if (now := self.now()) >= until:\n            return None\n",
            "        if (now := self.now()) >= until:\n            return None\n        asked = self._runtime.now()\n",
        ),
        tests=READER,
    ),
    mutant(
        "sqlite: a grant is read from a row of an earlier start of the machine",
        "two hold the lock: nobody else lets such a row count",
        (STORE, "if live(now, lapses_at, ttl) and (lapses_in", "if (lapses_in"),
        tests=READER,
    ),
    mutant(
        "sqlite: a waiter that reads takes every ring for its own",
        "the waiter that was meant sleeps on",
        (
            "backends/sql/sqlite/bell_reader.py",
            "self._topics if ring == self._ring else topics(ring)",
            "self._topics",
        ),
        tests=Tests("tests/sqlite/test_bell_reader.py", "what_it_names"),
    ),
    mutant(
        "sqlite: a release does not wake waiters of its own process",
        "they wait until the file is polled",
        (NOTIFIER, "            elif self._waiters.topics:", "            elif False:"),
        tests=Tests("tests/sqlite/test_bell_reader.py", "does_itself"),
    ),
    mutant(
        "sqlite: a client that is closed in the midst of a hand-off stays in the file",
        "its log is never moved into the file, and a later fork inherits the connection",
        (
            DATABASE,
            "                        if self.closed:  # from within, by a signal handler\n",
            "                        if False:\n",
        ),
        tests=Tests("tests/sqlite/test_critical_section.py", "in_the_midst_of_a_hand_off"),
    ),
    mutant(
        "sqlite: a hand-off does not give way to renewals",
        "a client's own threads cost it its leases",
        (
            DATABASE,
            "section, missed = self._section, False\n        if self._urgent_until <= now < self._verify_at and not section.owned():\n            try:\n                with section:\n                    if section.take(False) and (connection",
            "section, missed = self._section, False\n        if now < self._verify_at and not section.owned():\n            try:\n                with section:\n                    if section.take(False) and (connection",
        ),
        tests=Tests("tests/sqlite/test_critical_section.py", "gives_way"),
    ),
    mutant(
        "sqlite: statements that read share a cursor with those that write",
        "after Ctrl-C its snapshot stays, and what is read next is old",
        (DATABASE, "Transaction(connection, cursor, now, l", "Transaction(cursor, cursor, now, l"),
        tests=SNAPSHOT,
    ),
    mutant(
        "sqlite: the look for a grant shares a cursor with statements that write",
        "after Ctrl-C its snapshot stays, and what is read next is old",
        (
            DATABASE,
            "(connection := self._connection) is not None",
            "(connection := self._cursor) is not None",
        ),
        tests=SNAPSHOT,
    ),
    mutant(
        "sqlite: nobody reads for the second who waits",
        "it depends on a thread that may leave at any time",
        (NOTIFIER, "and (others or not self._may_read(waiter))", "and not self._may_read(waiter)"),
        (
            NOTIFIER,
            "                self._start()\n        return max",
            "                pass\n        return max",
        ),
        tests=Tests("tests/sqlite/test_bell_reader.py", "second_waits"),
    ),
    mutant(
        "sqlite: a reading waiter looks at its signal before it can be woken",
        "a wake-up between the look and the poll is missed",
        (
            "backends/sql/sqlite/bell_reader.py",
            "        self._awaiting = True  # first: if the signal is set after our look at it, the pipe wakes us\n        try:\n",
            "        is_set = self._signal.is_set()\n        self._awaiting = True\n        try:\n            if not is_set:\n                return poll.poll(max(0.0, timeout) * 1000)\n",
        ),
        tests=Tests("tests/sqlite/test_bell_reader.py", "between_the_look"),
    ),
    mutant(
        "sqlite: a register is written whatever its version",
        "of two updates at once one is lost",
        (
            "backends/sql/sqlite/tables/registers.py",
            "    if version != (0 if row is None else row[1]):",
            "    if False:",
        ),
        tests=ANSWERS,
    ),
    mutant(
        "sqlite: a crowded resource is crowded for ever",
        "each pair pays for a queue that has long been empty",
        (
            "backends/sql/sqlite/store.py",
            "self._crowded[resource] = now + CROWDED",
            "self._crowded[resource] = 1e300",
        ),
        tests=Tests("tests/sqlite/test_quick_path.py", "for_a_while"),
    ),
    mutant(
        "sqlite: the quick path is tried in vain",
        "each hand-off pays for two statements more",
        (
            "backends/sql/sqlite/store.py",
            "self._crowded[resource] = now + CROWDED",
            "self._crowded[resource] = now",
        ),
        tests=Tests("tests/sqlite/test_quick_path.py", "for_a_while"),
    ),
    mutant(
        "sqlite: a client is closed without waiting for a claim that is granted here",
        "the file is closed, and the claim stands until it lapses",
        (
            "_core/attempt.py",
            "        client.attempts[self] = None  # as in `run`, which ends it, or `undo`\n",
            "",
        ),
        tests=Tests("tests/sqlite/test_quick_path.py", "in_the_middle_of_a_claim"),
    ),
    mutant(
        "sqlite: a lease is enrolled with a client that was closed",
        "nobody looks after it",
        (
            "_core/holding.py",
            "        if client.closed:  # since it was asked for",
            "        if False:  # since it was asked for",
        ),
        tests=Tests("tests/sqlite/test_quick_path.py", "in_the_middle_of_a_claim"),
    ),
    mutant(
        "sqlite: every claim is a coroutine",
        "each pair pays for two of them more",
        ("_core/attempt.py", "if not client.decides_here or", "if True or"),
        tests=Tests("tests/sqlite/test_quick_path.py", "no_coroutine"),
    ),
    mutant(
        "sqlite: a claim that was in vain here is tried twice",
        "each newcomer in a queue pays for one statement more",
        (
            STORE,
            "        if changed is False:\n            self._missed = claim.id\n",
            "        if changed is False:\n            pass\n",
        ),
        tests=Tests("tests/sqlite/test_quick_path.py", "only_once"),
    ),
    mutant(
        "sqlite: a quick claim does not ask who stands there",
        "it is granted beside the holder",
        (CLAIMS, "    and not exists (select 1 from claim where resource = ?)\n", "    and ? is not null\n"),
        tests=ANSWERS,
    ),
    mutant(
        "sqlite: a quick claim does not ask who watches",
        "a watcher of the queue is never told of the new holder",
        (
            CLAIMS,
            "    and not exists (select 1 from bell where topic = ?)\n    and unmoved()",
            "    and ? is not null\n    and unmoved()",
        ),
        tests=Tests("tests/sqlite/test_waiting.py", "watch"),
    ),
    mutant(
        "sqlite: a quick claim does not ask whether its files are there",
        "a claim in files that were removed is granted beside the holder's",
        (
            CLAIMS,
            "    and unmoved()\n), ?);",
            "), ?);",
        ),
        tests=Tests("tests/sqlite/test_removed.py", "idle_claim or write_lock_in_hand"),
    ),
    mutant(
        "sqlite: the shared memory may be another",
        "two groups of processes write into one log, each with locks of its own",
        (
            INODES,
            "(inode(self._path), inode(self._shared)) == self._files",
            "inode(self._path) == self._files[0]",
        ),
        tests=Tests("tests/sqlite/test_removed.py", "contending or idle_claim or move_together"),
    ),
    mutant(
        "sqlite: a newcomer begins a log of its own",
        "it does not see what the others hold",
        (INODES, "        if shared:\n            raise errors.log_removed(self.path)\n", ""),
        tests=Tests("tests/sqlite/test_removed.py", "without_its_log"),
    ),
    mutant(
        "sqlite: one's own life looks dead",
        "a process takes its own locks away",
        (LIVENESS, "if life in (0, self.life) or not self.life:", "if life == 0 or not self.life:"),
        tests=Tests("tests/sqlite/test_liveness.py", "for_itself"),
    ),
    mutant(
        "sqlite: a forked child lives in its parent's life",
        "the lock of a killed parent is held until its children end",
        (
            LIVENESS,
            "        with suppress(OSError):\n            os.close(liveness._descriptor)\n",
            "        pass\n",
        ),
        tests=Tests("tests/sqlite/test_liveness.py", "forked_child"),
    ),
    mutant(
        "sqlite: what lingers dies with its process",
        "min_hold ends early",
        (CLAIMS, "bell = '', life = 0\n", "bell = ''\n"),
        tests=Tests("tests/sqlite/test_liveness.py", "on_purpose"),
    ),
    mutant(
        "sqlite: nobody watches the one ahead",
        "a killed holder blocks the queue for its ttl",
        ("backends/sql/sqlite/notifier.py", "            if not alive(life):\n", "            if False:\n"),
        tests=Tests("tests/sqlite/test_liveness.py", "next_in_line or however_many"),
    ),
    mutant(
        "sqlite: a trigger more is nobody's business",
        "a stranger's trigger lets two hold at once",
        ("backends/sql/sqlite/file/connection.py", "        _compare(path, found, expected())\n", ""),
        tests=Tests("tests/sqlite/test_ownership.py", "anything_that_we_did_not_make"),
    ),
    mutant(
        "sqlite: everybody may write the file",
        "any user of the machine can take any lock",
        ("backends/sql/sqlite/file/ownership.py", "if found.st_mode & stat.S_IWOTH:", "if False:"),
        tests=Tests("tests/sqlite/test_ownership.py", "everybody_may_write"),
    ),
    mutant(
        "sqlite: renewals wait their turn",
        "a client's own threads cost it its leases",
        (DATABASE, "self._urgent_until = self.clock.now() + URGENT", "pass"),
        tests=Tests("tests/sqlite/test_critical_section.py", "renewals_come_before"),
    ),
    mutant(
        "sqlite: a thread is noted before it runs",
        "one failed start leaves a client deaf for good",
        (
            "backends/sql/sqlite/notifier.py",
            "                self._thread = None  # one that did not start must not be taken for one that runs\n",
            "                pass\n",
        ),
        tests=Tests("tests/sqlite/test_waiting.py", "cannot_be_started"),
    ),
]
