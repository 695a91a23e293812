"""Deliberate bugs in how servers are asked: in connecting, and in the shortcuts of Redis and Redlock that every pair takes."""

from __future__ import annotations

from tests.mutants.mutant import Code, Mutant, Tests, Text, mutant

MUTANTS: list[Mutant] = [
    mutant(
        "redis: a renewal counts that no replica has confirmed",
        "a holder that is cut off with its master holds on while another is granted the lock by the promoted replica",
        Code(
            "backends/redis/replicated.py",
            "ReplicatedStore._renew_batch",
            "return answers if confirmed >= wanted else unconfirmed(batch, answers, confirmed, wanted)",
            "return answers",
        ),
        tests=Tests("tests/redis/test_cut_off.py", "by_hand"),
    ),
    mutant(
        "redis: a sentinel that is named twice counts twice",
        "two addresses of one sentinel are taken for a majority of three",
        Code(
            "backends/redis/sentinel/views.py",
            "agreed_at",
            "times.update({view.id or f'{number}': asked for number, view in enumerate(agreeing)})",
            "times.update({f'{number}': asked for number, view in enumerate(agreeing)})",
        ),
        tests=Tests("tests/redis/test_sentinel_views.py"),
    ),
    mutant(
        "redis: sentinels that are out of reach count as of now",
        "a client that is cut off with its master and one sentinel never learns that there is another master",
        Code(
            "backends/redis/sentinel/views.py",
            "agreed_at",
            "times[id] = max(times.get(id, NEVER), asked - max(0.0, age - hearsay))",
            "times[id] = max(times.get(id, NEVER), asked)",
        ),
        tests=Tests("tests/redis/test_sentinel_views.py"),
    ),
    mutant(
        "redis: a sentinel that has just started is believed to have heard the others",
        "a sentinel that restarts beside a master that was cut off makes the old master count again",
        Code(
            "backends/redis/sentinel/views.py",
            "_has_told",
            "return answered and int(entry.get(b'last-hello-message', since)) + SAME_EVENT_MS <= since",
            "return answered",
        ),
        tests=Tests("tests/redis/test_sentinel_views.py"),
    ),
    mutant(
        "redis: a sentinel that lost its memory is a majority of one",
        "a sentinel that starts with a new file beside a master that was cut off makes the old master count again",
        Code(
            "backends/redis/sentinel/views.py",
            "counted",
            "return count if len(there) >= majority(before) else max(count, before)",
            "return count",
        ),
        tests=Tests("tests/redis/test_sentinel_views.py"),
    ),
    mutant(
        "redis: grants count without a majority of the sentinels",
        "a holder that was cut off and lost asks again, and the old master grants it the lock that another has",
        Code(
            "backends/redis/sentinel/store.py",
            "SentinelStore.claim",
            "if type(answer) is Granted:\n    ...",
            "if type(answer) is NoAnswer:\n    ...",
        ),
        tests=Tests("tests/redis/test_cut_off.py", "nothing_is_granted"),
    ),
    mutant(
        "redis: a waiter believes a master that may have been replaced",
        "the old master hands the lock over to one waiter after the other, while somebody else has it at the new one",
        Code(
            "backends/redis/sentinel/store.py",
            "SentinelStore.wait",
            "return granted if await self._route.agreement.confirmed(claim.ttl, self._runtime, within) else None",
            "return granted",
        ),
        tests=Tests("tests/redis/test_cut_off.py", "does_not_believe_the_hand_over"),
    ),
    mutant(
        "redis: a claim is not signed while its slot is moved",
        "a guard that knows only the number cannot tell that it is the holder's",
        Text("backends/redis/wire/stretch.lua", "if ARGV[3] ~= '' then", "if false then"),
        tests=Tests("tests/redis/test_cluster.py", "renewed_before_and_after_its_key"),
    ),
    mutant(
        "postgresql: the first of several hosts has all of the time",
        "while the old primary hangs, nobody reaches the one that was promoted",
        Code(
            "backends/sql/postgresql/connection.py",
            "PostgresConnection._first_of",
            "await connect(choice, now + (until - now) / (len(choices) - tried))",
            "await connect(choice, until)",
        ),
        tests=Tests("tests/postgresql/test_hosts.py", "hangs_leaves_time and sync and not async"),
    ),
    mutant(
        "postgresql: the keeper stays in the role that it logs in with",
        "beside a pool that sets a role it may not renew, and every lease is lost",
        Code(
            "backends/sql/postgresql/connection.py",
            "PostgresConnection._greet",
            "self._role = self._address.role",
            "self._role = b''",
        ),
        tests=Tests("tests/postgresql/test_user_logins.py", "a_pool_that_sets and not async"),
    ),
    mutant(
        "a keeper that is refused does not ask the user's pool for its new password",
        "a password that was changed loses every lease at the next reconnection",
        Code(
            "backends/sql/pool.py",
            "ConnectionPool._open",
            ("if self._new_login is None or not await self._new_login.look(self._runtime, left):\n    ..."),
            (
                "if self._new_login is None or self._new_login or (not await self._new_login.look(self._runtime, left)):\n"
                "    ..."
            ),
        ),
        tests=Tests("tests/postgresql/test_user_logins.py", "test_a_pool_whose_password"),
    ),
    mutant(
        "every connection has the time of the first one",
        "on a server that hangs, a call with timeout=1 takes 5 s from the second call on",
        Code(
            "backends/kit/connect_pace.py",
            "ConnectPace.within",
            "return min(self.longest, time_to_reconnect(timeout, self._took))",
            "return self.longest",
        ),
        tests=Tests("tests/redis/test_hanging.py", "alone"),
    ),
    mutant(
        "redis, asyncio: a request overtakes those that wait for the end of the turn",
        "replies are matched in order, so tasks get each other's answers",
        Code(
            "backends/redis/transport/multiplexed.py",
            "MultiplexedConnection.ask",
            "self._send(request, not pending and not self.inline_resume.ready)",
            "self._send(request, len(pending) != 1 and not self.inline_resume.ready)",
        ),
        tests=Tests("tests/redis/test_multiplexed_order.py"),
    ),
    mutant(
        "redlock: a release does not see who waits",
        "a waiter of redis:// on a node of the quorum sleeps on, for up to ten seconds",
        Code(
            "backends/redlock/wire/packing.py",
            "Packing._release",
            "names = keys.of_quorum_releases.get(resource) or keys.waiters_keys(resource)",
            "names = keys.holder_keys(resource)",
        ),
        tests=Tests("tests/redlock/test_scripts.py", "refuses_to_hand"),
    ),
    mutant(
        "redlock: a late vote does not tell the clock of its node",
        "a client counts a node whose clock has jumped, because it had never read it before",
        Code(
            "backends/redlock/transport/connections.py",
            "NodeConnection.receive",
            "self.tell_late_vote(packed, reply)",
            "pass",
        ),
        tests=Tests("tests/redlock/test_late_votes.py", "sync and not async"),
    ),
    mutant(
        "redlock, asyncio: a late vote does not tell the clock of its node",
        "a client counts a node whose clock has jumped, because it had never read it before",
        Code(
            "backends/redlock/transport/aio.py",
            "Exchange.on_reply",
            "self._transport.on_late_vote(node, vote, reply, self._sent, self._transport.now())",
            "pass",
        ),
        tests=Tests("tests/redlock/test_late_votes.py", "async"),
    ),
    mutant(
        "redlock: a round waits only for nodes that are not behind, however few these are",
        "a round ends with its time though all nodes have answered, and they are taken for hung",
        Code(
            "backends/redlock/transport/connections.py",
            "ConnectionSet.ask",
            "if behind and len(behind) >= min(least, len(waiting) - least + 1):\n    ...",
            "if behind and (not least):\n    ...",
        ),
        tests=Tests("tests/redlock/test_late_votes.py", "hold_up"),
    ),
    mutant(
        "redlock: a release that went another way than its vote counts as carried out",
        "the claim stands on a node for its whole ttl, and others have one node less",
        Code(
            "backends/redlock/transport/connections.py",
            "NodeConnection.receive",
            "if packed.sent_on_other_set and reply == 0:\n    ...",
            "if False:\n    ...",
        ),
        tests=Tests("tests/redlock/test_late_votes.py", "before_its_vote"),
    ),
    mutant(
        "redlock: a vote does not see who shares the resource",
        "a reader and the holder of a plain lock of the same name are inside together",
        Text(
            "backends/redlock/wire/vote.lua",
            "redis.call('EXISTS', holder, KEYS[2]) == 0",
            "redis.call('EXISTS', holder) == 0",
        ),
        tests=Tests("tests/redlock/test_scripts.py", "beside_sharers"),
    ),
    mutant(
        "redlock: a vote makes a number where there is none",
        "a node that lost its memory grants what others hold",
        Text("backends/redlock/wire/vote.lua", "'XX', 'GT', 'CH'", "'GT', 'CH'"),
        tests=Tests("tests/redlock/test_scripts.py", "memory_was_lost"),
    ),
    mutant(
        "redlock: a vote raises the number before it knows who is in the way",
        "waiters raise the number of a held lock, and a far client gets half of its grants",
        Text(
            "backends/redlock/wire/vote.lua",
            "local entered = free and #seat > 40 and not ARGV[6] and redis.call('ZADD', quorum, 'XX', 'GT', 'CH', ballot, field) == 1",
            "local entered = #seat > 40 and not ARGV[6] and redis.call('ZADD', quorum, 'XX', 'GT', 'CH', ballot, field) == 1 and free",
        ),
        tests=Tests("tests/redlock/test_usual_votes.py", "raise_the_number"),
    ),
    mutant(
        "redlock: half of a seat and a name are taken for another name",
        "a client is granted a lock by the number of another lock",
        Text("backends/redlock/wire/vote.lua", "free and #seat > 40 and", "free and"),
        tests=Tests("tests/redlock/test_scripts.py", "looks_like_a_seat"),
    ),
    mutant(
        "redlock: a client names the seat whatever ttl the node remembers",
        "a node that forgets votes again while a longer lease lasts",
        Code(
            "backends/redlock/algorithm/membership.py",
            "Membership.seats_for",
            "return [seat if ttl <= noted else None for seat, noted in self._seats]",
            "return [seat for seat, noted in self._seats]",
        ),
        tests=Tests("tests/redlock/test_usual_votes.py", "longer_ttl"),
    ),
    mutant(
        "redlock: the floor falls to the last number that is merged",
        "a client whose clock is behind gets a lower token",
        Text("backends/redlock/wire/vote.lua", "'GT', found[#found], 'floor'", "found[#found], 'floor'"),
        tests=Tests("tests/redlock/test_scripts.py", "never_falls"),
    ),
    mutant(
        "redlock: one request counts a server twice that has moved to another address",
        "a holder goes on with one server of three",
        Code(
            "backends/redlock/wire/packing.py",
            "refuse_twice",
            "if its.run == identity.run != NONE:\n    ...",
            "if False:\n    ...",
        ),
        tests=Tests("tests/redlock/test_kinds.py", "took_the_place"),
    ),
    mutant(
        "redlock, asyncio: a loop that was busy blames the nodes",
        "of thousands of tasks that ask at once, none gets its lock",
        Code(
            "backends/redlock/transport/aio.py",
            "AsyncQuorumTransport._expire",
            "if exchange.until <= now and busy > LATE_S and (not exchange.excused):\n    ...",
            "if exchange.until <= now and False:\n    ...",
        ),
        tests=Tests("tests/redlock/test_many_tasks.py", "a_loop_that_was_busy"),
    ),
    mutant(
        "redlock: a thread that was busy blames the nodes",
        "a thread that gets no processor for half a second gets no lock",
        Code(
            "backends/redlock/transport/connections.py",
            "ConnectionSet.ask",
            "if not ready and left <= 0 and (not behind):\n    ...",
            "if left <= 0:\n    ...",
        ),
        tests=Tests("tests/redlock/test_many_tasks.py", "a_thread_that_was_busy"),
    ),
    mutant(
        "redlock: a node begins in a start for which it is not ready",
        "two hold the lock: a majority forgot it, and begins again with the others",
        Text(
            "backends/redlock/wire/start.lua",
            "if start > 0 and -tonumber(f[4] or 0) ~= start then",
            "if false then",
        ),
        tests=Tests("tests/redlock/test_scripts.py", "step_by_step"),
    ),
    mutant(
        "redlock: a node that restarts without loss forgets its numbers",
        "a client whose clock is behind gets a lower token",
        Text(
            "backends/redlock/wire/checkin.lua",
            "redis.call('ZADD', quorum, exact(highest), 'floor')",
            "highest = 0",
        ),
        tests=Tests("tests/redlock/test_scripts.py", "restarts_without_loss"),
    ),
    mutant(
        "a client that is closed cuts off the releases of others",
        "a program that cancels all its tasks at its end leaves their claims behind, each for a whole ttl",
        Code(
            "_core/client.py",
            "Client._see_releases_end",
            "if self._others_releasing():\n    ...",
            "if not self.closed:\n    ...",
        ),
        tests=Tests("tests/redis/test_closing_beside_releases.py"),
    ),
    mutant(
        "asyncio: a task is resumed inside of another",
        "the loop knows one running task, and either of them is taken for the other",
        Code(
            "_support/inline_resume.py",
            "InlineResume.run",
            "if task_of(loop) is not None or '_nest_patched' in names_in_asyncio:\n    ...",
            "if task_of(loop) is loop or '_nest_patched' in names_in_asyncio:\n    ...",
        ),
        tests=Tests("tests/unit/test_inline_resume.py", "another_task"),
    ),
    mutant(
        "asyncio: the tasks of one read depend on each other",
        "a task that ends the program leaves others behind for ever",
        Code(
            "_support/inline_resume.py",
            "InlineResume.run",
            "if len(ready) > 1:\n    ...",
            "if not ready:\n    ...",
        ),
        tests=Tests("tests/unit/test_inline_resume.py", "as_in_asyncio"),
    ),
    mutant(
        "asyncio: tasks are resumed at once with nest_asyncio, too",
        "a lock inside a nested run of the loop waits for five seconds",
        Code(
            "_support/inline_resume.py",
            "InlineResume.run",
            "if task_of(loop) is not None or '_nest_patched' in names_in_asyncio:\n    ...",
            "if task_of(loop) is not None:\n    ...",
        ),
        tests=Tests("tests/unit/test_inline_resume.py", "may_run_the_loop"),
    ),
    mutant(
        "redis, asyncio: a connection goes on after an interrupt between a reply and its request",
        "every later request gets the answer to another, and a lock may be held that was not granted",
        Code(
            "backends/redis/transport/pipelined.py",
            "PipelinedConnection.data_received",
            "self.end(unreachable(self.label, 'the program was interrupted while it read a reply'))",
            "pass",
        ),
        tests=Tests("tests/redis/test_multiplexed_order.py", "interrupt"),
    ),
    mutant(
        "asyncio: tasks are resumed at once below uvloop, too",
        "a program that calls sys.exit goes on, without its connection",
        Code(
            "_support/inline_resume.py",
            "InlineResume.__init__",
            "self._at_once = isinstance(loop, asyncio.BaseEventLoop)",
            "self._at_once = True",
        ),
        tests=Tests("tests/unit/test_inline_resume.py", "uvloop"),
    ),
    mutant(
        "asyncio: a reply is set for a task that was cancelled",
        "the connection ends with an error of the future, and all other tasks with it",
        Code(
            "backends/redis/transport/multiplexed.py",
            "MultiplexedConnection._on_replies",
            "if not waiting.done():\n    ...",
            "if True:\n    ...",
        ),
        tests=Tests("tests/redis/test_multiplexed_order.py"),
    ),
    mutant(
        "redis: hiredis makes every list whose length it reads",
        "the head of an array of 10**9 items, 13 bytes, stops the whole process for seconds",
        Code(
            "backends/redis/wire/resp.py",
            "HiredisReader._checked",
            "if self._owed or len(length) > MAX_LENGTH_DIGITS or int(length) > MAX_ITEMS:\n    ...",
            "if False:\n    ...",
        ),
        tests=Tests("tests/redis/test_resp.py", "longer_one_refused"),
    ),
    mutant(
        "redis: a reply has no end",
        "a hostile server fills the memory of its clients",
        Code(
            "backends/redis/wire/resp.py",
            "check_size",
            "if size > MAX_REPLY_BYTES:\n    ...",
            "if False:\n    ...",
        ),
        tests=Tests("tests/redis/test_hostile_server.py", "without_end and string and hiredis"),
    ),
]
