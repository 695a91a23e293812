"""Deliberate bugs in the lock file."""

from __future__ import annotations

from tests.mutants.mutant import Code, Mutant, Tests, Text, agreeing, mutant

CLAIMS = "backends/sql/sqlite/tables/claims.sql"
INODES = "backends/sql/sqlite/file/inodes.py"
FOLDERS = "backends/sql/sqlite/file/folders.py"
DOORBELL = "backends/sql/sqlite/doorbell.py"
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
        Text(
            CLAIMS,
            "where resource = ? and id = ? and state = 1 and bell",
            "where resource = ? and ? is not null and state = 1 and bell",
        ),
        Text(CLAIMS, "where resource = ? and id <> ?)", "where resource = ? and id <> ? and 0)"),
        tests=ANSWERS,
    ),
    mutant(
        "sqlite: what lapsed can be renewed",
        "a holder that lapsed comes back",
        Text(
            CLAIMS,
            "between :least and 1 and lapses_at > :now and lapses_at",
            "between :least and 1 and lapses_at",
        ),
        tests=ANSWERS,
    ),
    mutant(
        "sqlite: renewal may shorten",
        "a late, short renewal takes away what the holder counts on",
        Text(CLAIMS, "    lapses_at = max(lapses_at, :now + :ttl),", "    lapses_at = :now + :ttl,"),
        tests=ANSWERS,
    ),
    mutant(
        "sqlite: tokens follow the clock alone",
        "a clock set back gives a token twice",
        Code(
            "backends/sql/sqlite/tables/claims.py",
            "_enter",
            "position.token = token = max(token, last + 1)",
            "position.token = token = max(token, 1)",
        ),
        Text(CLAIMS, "where last < ?\n", "where last < ? + 9000000000000000\n"),
        tests=ANSWERS,
    ),
    mutant(
        "sqlite: who is let in is not rung",
        "every hand-off waits for a lapse",
        Code("backends/sql/sqlite/tables/queue.py", "advance", "tx.ring(row.bell, 'c' + row.id)", ""),
        tests=WOKEN,
    ),
    mutant(
        "sqlite: who is let in the short way is not rung",
        "every hand-off between two processes waits for a poll",
        Code(HAND_OVER, "_hand_over", "tx.ring(next_bell, 'c' + next_id)", ""),
        tests=WOKEN,
    ),
    mutant(
        "sqlite: the short way of a release rings its own bell first",
        "the next waits while the process that releases looks for waiters of its own",
        Code(
            HAND_OVER,
            "_hand_over",
            (
                "if holder != id or state != IN or (len(front) > 1 and front[1][3] != WAITS):\n"
                "    return False"
            ),
            (
                "if holder != id or state != IN or (len(front) > 1 and front[1][3] != WAITS):\n"
                "    return False\n"
                "tx.ring(bell, 'c' + id)"
            ),
        ),
        tests=Tests("tests/sqlite/test_hand_over.py", "before_the_bell"),
    ),
    mutant(
        "sqlite: a grant that is being made is taken for the user's code",
        "SIGTERM ends the process there, and the claim is left behind",
        Code(
            "_api/shutdown.py",
            "_asked_by_its_caller",
            "return file.startswith('<frozen ') or module.startswith(('interlock.', 'namedtuple_'))",
            "return file.startswith('<frozen ') or module.startswith('namedtuple_')",
        ),
        tests=Tests("tests/attacks/test_signals.py", "any_call and hot"),
    ),
    mutant(
        "sqlite: a row that is being read is taken for the user's code",
        "SIGTERM ends the process inside a transaction, and nothing is released",
        Code(
            "_api/shutdown.py",
            "_asked_by_its_caller",
            "return file.startswith('<frozen ') or module.startswith(('interlock.', 'namedtuple_'))",
            "return file.startswith('<frozen ') or module.startswith('interlock.')",
        ),
        tests=Tests("tests/attacks/test_signals.py", "any_call and taken"),
    ),
    mutant(
        "sqlite: the short way of a release ignores what stands behind the next",
        "a lapsed row stays, and is counted",
        Code(
            HAND_OVER,
            "_hand_over",
            "if not front or front[-1][3] is None:\n    ...",
            "if not front or front[0][3] is None:\n    ...",
        ),
        tests=Tests("tests/sqlite/test_hand_over.py", "both_ways"),
    ),
    mutant(
        "sqlite: the short way of a release takes any holder for its own",
        "a stranger's release frees the holder's lock",
        Code(
            HAND_OVER,
            "_hand_over",
            "if holder != id or state != IN or (len(front) > 1 and front[1][3] != WAITS):\n    ...",
            "if state != IN or (len(front) > 1 and front[1][3] != WAITS):\n    ...",
        ),
        tests=Tests("tests/sqlite/test_hand_over.py", "both_ways"),
    ),
    mutant(
        "sqlite: a waiter that was rung takes that for a grant",
        "two hold the lock",
        Text(CLAIMS, " and state = 1 order by token limit 1", " order by token limit 1"),
        tests=READER,
    ),
    mutant(
        "sqlite: a grant is read from files that were replaced",
        "two hold the lock, one in each file",
        Code(
            DATABASE,
            "Database._read_verified",
            "if not self._identity.holds_still():\n    ...",
            "if False:\n    ...",
        ),
        tests=READER,
    ),
    mutant(
        "sqlite: a grant that is read is counted from after the clock was asked about the row",
        "the holder goes on after its claim has lapsed",
        Code(
            STORE,
            "SqliteStore._look_for_grant",
            "asked = self._runtime.now()\nif (now := self.now()) >= until:\n    return None",
            "if (now := self.now()) >= until:\n    return None\nasked = self._runtime.now()",
        ),
        tests=READER,
    ),
    mutant(
        "sqlite: a grant is read from a row of an earlier start of the machine",
        "two hold the lock: nobody else lets such a row count",
        Code(
            STORE,
            "SqliteStore._look_for_grant",
            (
                "if live(now, lapses_at, ttl) and (lapses_in := (lapses_at - now)) >= claim.place_ttl / 2:\n"
                "    ..."
            ),
            "if (lapses_in := (lapses_at - now)) >= claim.place_ttl / 2:\n    ...",
        ),
        tests=READER,
    ),
    mutant(
        "sqlite: a waiter that reads takes every ring for its own",
        "the waiter that was meant sleeps on",
        Code(
            "backends/sql/sqlite/bell_reader.py",
            "BellReader.receive",
            "return self._topics if ring == self._ring else self._doorbell.topics(ring)",
            "return self._topics",
        ),
        tests=Tests("tests/sqlite/test_bell_reader.py", "what_it_names"),
    ),
    mutant(
        "sqlite: a release does not wake waiters of its own process",
        "they wait until the file is polled",
        Code(NOTIFIER, "Notifier.ring", "if self._waiters.topics:\n    ...", "if False:\n    ..."),
        tests=Tests("tests/sqlite/test_bell_reader.py", "does_itself"),
    ),
    mutant(
        "sqlite: a client that is closed in the midst of a hand-off stays in the file",
        "its log is never moved into the file, and a later fork inherits the connection",
        Code(DATABASE, "Database.run", "if self.closed:\n    ...", "if False:\n    ..."),
        tests=Tests("tests/sqlite/test_critical_section.py", "in_the_midst_of_a_hand_off"),
    ),
    mutant(
        "sqlite: a hand-off does not give way to renewals",
        "a client's own threads cost it its leases",
        Code(
            DATABASE,
            "Database.run",
            "self._urgent_until <= now < self._verify_at",
            "now < self._verify_at",
        ),
        tests=Tests("tests/sqlite/test_critical_section.py", "gives_way"),
    ),
    mutant(
        "sqlite: statements that read share a cursor with those that write",
        "after Ctrl-C its snapshot stays, and what is read next is old",
        Code(
            DATABASE,
            "Database._transact",
            "transaction = Transaction(connection, cursor, now, liveness.life, liveness.alive)",
            "transaction = Transaction(cursor, cursor, now, liveness.life, liveness.alive)",
        ),
        tests=SNAPSHOT,
    ),
    mutant(
        "sqlite: nobody reads for the second who waits",
        "it depends on a thread that may leave at any time",
        Code(
            NOTIFIER,
            "Notifier.listen",
            (
                "if self._thread is None and (not self._closed) and (others or not self._may_read(waiter)):\n"
                "    ..."
            ),
            ("if self._thread is None and (not self._closed) and (not self._may_read(waiter)):\n    ..."),
        ),
        Code(NOTIFIER, "Notifier.wait", "self._start()", "pass"),
        tests=Tests("tests/sqlite/test_bell_reader.py", "second_waits"),
    ),
    mutant(
        "sqlite: a reading waiter looks at its signal before it can be woken",
        "a wake-up between the look and the poll is missed",
        Code(
            "backends/sql/sqlite/bell_reader.py",
            "BellReader.wait",
            (
                "self._awaiting = True\n"
                "try:\n"
                "    found: list[tuple[int, int]] = [] if self._signal.is_set() else poll.poll(max(0.0, timeout) * 1000)\n"
                "    return found\n"
                "finally:\n"
                "    self._awaiting = False"
            ),
            (
                "is_set = self._signal.is_set()\n"
                "self._awaiting = True\n"
                "try:\n"
                "    if not is_set:\n"
                "        return poll.poll(max(0.0, timeout) * 1000)\n"
                "    found: list[tuple[int, int]] = [] if self._signal.is_set() else poll.poll(max(0.0, timeout) * 1000)\n"
                "    return found\n"
                "finally:\n"
                "    self._awaiting = False"
            ),
        ),
        tests=Tests("tests/sqlite/test_bell_reader.py", "between_the_look"),
    ),
    mutant(
        "sqlite: a register is written whatever its version",
        "of two updates at once one is lost",
        Code(
            "backends/sql/sqlite/tables/registers.py",
            "write",
            "if version != (0 if row is None else row[1]):\n    ...",
            "if False:\n    ...",
        ),
        tests=ANSWERS,
    ),
    mutant(
        "sqlite: a crowded resource is crowded for ever",
        "each pair pays for a queue that has long been empty",
        Code(
            "backends/sql/sqlite/store.py",
            "SqliteStore._met_others",
            "self._crowded[resource] = now + CROWDED_S",
            "self._crowded[resource] = 1e+300",
        ),
        tests=Tests("tests/sqlite/test_quick_path.py", "for_a_while"),
    ),
    mutant(
        "sqlite: the quick path is tried in vain",
        "each hand-off pays for two statements more",
        Code(
            "backends/sql/sqlite/store.py",
            "SqliteStore._met_others",
            "self._crowded[resource] = now + CROWDED_S",
            "self._crowded[resource] = now",
        ),
        tests=Tests("tests/sqlite/test_quick_path.py", "for_a_while"),
    ),
    mutant(
        "sqlite: a client is closed without waiting for a claim that is granted here",
        "the file is closed, and the claim stands until it lapses",
        Code("_core/attempt.py", "Attempt.at_once", "client.attempts[self] = None", ""),
        tests=Tests("tests/sqlite/test_quick_path.py", "in_the_middle_of_a_claim"),
    ),
    mutant(
        "sqlite: a lease is enrolled with a client that was closed",
        "nobody looks after it",
        Code(
            "_core/holding.py",
            "Holding.register_lease",
            ("self.leases[lease] = client.leases[lease] = None\nif client.closed:\n    client.check_open()"),
            "self.leases[lease] = client.leases[lease] = None\nif False:\n    client.check_open()",
        ),
        tests=Tests("tests/sqlite/test_quick_path.py", "in_the_middle_of_a_claim"),
    ),
    mutant(
        "sqlite: every claim is a coroutine",
        "each pair pays for two of them more",
        Code(
            "_core/attempt.py",
            "Attempt.at_once",
            "if not client.decides_here or claim.block > 1 or holding is None:\n    ...",
            "if True or claim.block > 1 or holding is None:\n    ...",
        ),
        tests=Tests("tests/sqlite/test_quick_path.py", "no_coroutine"),
    ),
    mutant(
        "sqlite: a claim that was in vain here is tried twice",
        "each newcomer in a queue pays for one statement more",
        Code(
            STORE,
            "SqliteStore.claim_idle",
            "if changed is False:\n    self._missed = claim.id",
            "if changed is False:\n    pass",
        ),
        tests=Tests("tests/sqlite/test_quick_path.py", "only_once"),
    ),
    mutant(
        "sqlite: a quick claim does not ask who stands there",
        "it is granted beside the holder",
        Text(
            CLAIMS, "    and not exists (select 1 from claim where resource = ?)\n", "    and ? is not null\n"
        ),
        tests=ANSWERS,
    ),
    mutant(
        "sqlite: a quick claim does not ask who watches",
        "a watcher of the queue is never told of the new holder",
        Text(
            CLAIMS,
            "    and not exists (select 1 from bell where topic = ?)\n    and unmoved()",
            "    and ? is not null\n    and unmoved()",
        ),
        tests=Tests("tests/sqlite/test_waiting.py", "watch"),
    ),
    mutant(
        "sqlite: a quick claim does not ask whether its files are there",
        "a claim in files that were removed is granted beside the holder's",
        Text(
            CLAIMS,
            "    and unmoved()\n), ?);",
            "), ?);",
        ),
        tests=Tests("tests/sqlite/test_removed.py", "idle_claim or write_lock_in_hand"),
    ),
    mutant(
        "sqlite: the shared memory may be another",
        "two groups of processes write into one log, each with locks of its own",
        Code(
            INODES,
            "FileIdentity.holds",
            "return (inode(self._path), inode(self._shared)) == self._files",
            "return inode(self._path) == self._files[0]",
        ),
        tests=Tests("tests/sqlite/test_removed.py", "contending or idle_claim or move_together"),
    ),
    mutant(
        "sqlite: a newcomer begins a log of its own",
        "it does not see what the others hold",
        Code(INODES, "OpenFiles._wait_for_files", "if shared:\n    raise errors.log_removed(self.path)", ""),
        tests=Tests("tests/sqlite/test_removed.py", "without_its_log"),
    ),
    mutant(
        "sqlite: one's own life looks dead",
        "a process takes its own locks away",
        Code(
            LIVENESS,
            "Liveness.alive",
            "if life in (0, self.life) or not self.life:\n    ...",
            "if life == 0 or not self.life:\n    ...",
        ),
        tests=Tests("tests/sqlite/test_liveness.py", "for_itself"),
    ),
    mutant(
        "sqlite: a forked child lives in its parent's life",
        "the lock of a killed parent is held until its children end",
        Code(LIVENESS, "after_fork", "liveness._close()", "pass"),
        tests=Tests("tests/sqlite/test_liveness.py", "forked_child"),
    ),
    mutant(
        "sqlite: the end of one life takes another from the list",
        "a forked child keeps the descriptor, and with it the lock of a killed parent",
        Code(
            LIVENESS,
            "Liveness.end",
            (
                "if not self._holders and _livenesses.get(self.inode) is self:\n"
                "    del _livenesses[self.inode]\n"
                "    self._close()"
            ),
            "if not self._holders and _livenesses.pop(self.inode, None) is self:\n    self._close()",
        ),
        tests=Tests("tests/sqlite/test_liveness.py", "forked_after or that_are_closed"),
    ),
    mutant(
        "sqlite: one who leaves takes the life of a file from others",
        "what the file under its other name holds is taken for a dead process's",
        Code(
            LIVENESS,
            "Liveness.end",
            "if not self._holders and _livenesses.get(self.inode) is self:\n    ...",
            "if _livenesses.get(self.inode) is self:\n    ...",
        ),
        tests=Tests("tests/sqlite/test_liveness.py", "two_names"),
    ),
    mutant(
        "sqlite: a file that cannot be opened again ends the life",
        "what a process without a free descriptor holds goes to another",
        Code(INODES, "OpenFiles.settle", "self._new = False", "pass"),
        tests=Tests("tests/sqlite/test_liveness.py", "opened_again_just_now"),
    ),
    mutant(
        "sqlite: a client that is collected takes its claims with it",
        "what was claimed on purpose without a client in hand goes to another",
        Code(DATABASE, "Database.__del__", "stands = outlived(reader, reader.life)", "stands = False"),
        tests=Tests("tests/sqlite/test_liveness.py", "dropped_client_holds"),
    ),
    mutant(
        "sqlite: an interrupt goes with the function that kept it",
        "two Ctrl-C in a row are both swallowed, and the program goes on",
        Code(DATABASE, "Database._failed", "unmoved.raise_interrupt()", "pass"),
        tests=Tests("tests/sqlite/test_interrupts.py", "not_lost_with_the_function"),
    ),
    mutant(
        "sqlite: a closed descriptor of the directory fails every claim",
        "a program that became a daemon can lock nothing any more",
        Code(INODES, "UnmovedFunction._answers", "identity.directory = identity.changed = -1", "raise"),
        tests=Tests("tests/sqlite/test_interrupts.py", "closes_the_descriptor"),
    ),
    mutant(
        "sqlite: what lingers dies with its process",
        "min_hold ends early",
        Text(CLAIMS, "bell = '', life = 0\n", "bell = ''\n"),
        tests=Tests("tests/sqlite/test_liveness.py", "on_purpose"),
    ),
    mutant(
        "sqlite: nobody watches the one ahead",
        "a killed holder blocks the queue for its ttl",
        Code(
            "backends/sql/sqlite/notifier.py",
            "Notifier._check_lives",
            "if not alive(life):\n    ...",
            "if False:\n    ...",
        ),
        tests=Tests("tests/sqlite/test_liveness.py", "next_in_line or however_many"),
    ),
    mutant(
        "sqlite: a trigger more is nobody's business",
        "a stranger's trigger lets two hold at once",
        Code("backends/sql/sqlite/file/connection.py", "_is_new", "_compare(path, found, expected())", ""),
        tests=Tests("tests/sqlite/test_ownership.py", "anything_that_we_did_not_make"),
    ),
    mutant(
        "sqlite: everybody may write the file",
        "any user of the machine can take any lock",
        Code(
            "backends/sql/sqlite/file/ownership.py",
            "_check_writers",
            "if found.st_mode & stat.S_IWOTH:\n    ...",
            "if False:\n    ...",
        ),
        tests=Tests("tests/sqlite/test_ownership.py", "everybody_may_write"),
    ),
    mutant(
        "sqlite: everybody may read the lock file",
        "any user of the machine stops all locking with a lock on one byte",
        Code(
            "backends/sql/sqlite/file/ownership.py",
            "_check_readers",
            "if found.st_mode & stat.S_IROTH:\n    ...",
            "if False:\n    ...",
        ),
        tests=Tests("tests/sqlite/test_ownership.py", "only_read"),
    ),
    mutant(
        "sqlite: a stranger's folder is as good as any",
        "its owner removes the lock file while it is in use: two hold",
        Code(FOLDERS, "check", "if found.st_uid not in owners:\n    ...", "if False:\n    ..."),
        tests=Tests("tests/sqlite/test_ownership.py", "made_first or belongs_to_a_stranger"),
    ),
    mutant(
        "sqlite: a sticky folder is enough for a lock file",
        "a stranger lays a journal beside it, which SQLite plays back",
        Code(
            FOLDERS,
            "check",
            "if (others or group) and found.st_mode & stat.S_ISVTX and (not holds_file):\n    ...",
            "if (others or group) and found.st_mode & stat.S_ISVTX:\n    ...",
        ),
        tests=Tests("tests/sqlite/test_ownership.py", "sticky_folder"),
    ),
    mutant(
        "sqlite: what lies in a sticky folder may be anybody's",
        "a stranger's link leads to another lock file",
        Code(
            FOLDERS,
            "check",
            "if entry is not None and entry.st_uid not in (0, us):\n    ...",
            "if False:\n    ...",
        ),
        tests=Tests("tests/sqlite/test_ownership.py", "make_one_could_be_a_trap"),
    ),
    mutant(
        "sqlite: any group may write to the folder",
        "its members replace a lock file that they may not write",
        Code(
            FOLDERS,
            "check",
            "if group and (not may_write(found.st_gid, file)):\n    ...",
            "if False:\n    ...",
        ),
        tests=Tests("tests/sqlite/test_ownership.py", "only_if_it_may_write_the_file"),
    ),
    mutant(
        "sqlite: a ring needs no key",
        "any user of the machine keeps waiters busy by guessing topics",
        Code(
            DOORBELL,
            "Doorbell.topics",
            "return [UNKNOWN]",
            "return datagram.decode('utf-8', 'replace').split('\\n')",
        ),
        tests=Tests("tests/sqlite/test_waiting.py", "flood_costs_little"),
    ),
    mutant(
        "sqlite: a ring for somebody excuses a flood",
        "strangers take a core of whoever is rung now and then",
        Code(
            NOTIFIER,
            "Notifier._receive",
            "if self._wasted:\n    self._waste(0.0, least=0.0)",
            "self._wasted = 0.0",
        ),
        tests=Tests("tests/sqlite/test_waiting.py", "flood_between"),
    ),
    mutant(
        "sqlite: any address is a doorbell's",
        "one who shares the file makes root send orders to other programs",
        Code(
            DOORBELL,
            "",
            "ABSTRACT = re.compile('@(interlock/[0-9]{1,10}/[0-9a-f]{16})#([0-9a-f]{32})', re.ASCII)",
            "ABSTRACT = re.compile('@([^#]*)#([0-9a-f]{32})', re.ASCII)",
        ),
        tests=Tests("tests/sqlite/test_waiting.py", "not_a_doorbells"),
    ),
    mutant(
        "sqlite: renewals wait their turn",
        "a client's own threads cost it its leases",
        Code(DATABASE, "Database._alone", "self._urgent_until = self.clock.now() + URGENT_S", "pass"),
        tests=Tests("tests/sqlite/test_critical_section.py", "renewals_come_before"),
    ),
    mutant(
        "sqlite: a thread is noted before it runs",
        "one failed start leaves a client deaf for good",
        Code("backends/sql/sqlite/notifier.py", "Notifier._start", "self._thread = None", "pass"),
        tests=Tests("tests/sqlite/test_waiting.py", "cannot_be_started"),
    ),
    mutant(
        "sqlite: the lock file takes the number of a closed stream",
        "a warning of a C library overwrites the header of the file",
        Code(
            "_support/standard_streams.py",
            "occupy",
            "for number in range(MIN_DESCRIPTOR):\n    ...",
            "return",
        ),
        tests=Tests("tests/sqlite/test_closed_streams.py", "does_not_reach"),
    ),
    mutant(
        "sqlite: the command of a killed wrapper does not count",
        "its lock is free while it still runs",
        Code(
            LIVENESS,
            "Liveness.alive",
            "locked(self._descriptor, life) is not False or self._command_lives(life)",
            "locked(self._descriptor, life) is not False",
        ),
        tests=Tests("tests/cli/test_presence.py", "not_free_while"),
    ),
    mutant(
        "sqlite: nobody notices a fork from C",
        "a child uses its parent's connection, and both hold one lock",
        Code(DATABASE, "Database._alone", "if getpid() != _process:\n    ...", "if False:\n    ..."),
        Code(
            DATABASE,
            "Database.single",
            "getpid() == _process",
            "True",
        ),
        tests=Tests("tests/sqlite/test_fork.py", "c_code"),
    ),
]
