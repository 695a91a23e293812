"""Deliberate bugs in how Redlock and Redis are asked: in the shortcuts that every pair takes."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Tests, mutant

MUTANTS: list[Mutant] = [
    mutant(
        "redis, asyncio: a request overtakes those that wait for the end of the turn",
        "replies are matched in order, so tasks get each other's answers",
        (
            "backends/redis/transport/multiplexed.py",
            "if not pending and not self.wakeups.ready:",
            "if len(pending) != 1 and not self.wakeups.ready:",
        ),
        tests=Tests("tests/redis/test_multiplexed_order.py"),
    ),
    mutant(
        "redlock: a release does not see who waits",
        "a waiter of redis:// on a node of the quorum sleeps on, for up to ten seconds",
        (
            "backends/redlock/wire/packing.py",
            "keys.of_quorum_releases.get(resource) or keys.waiters_keys(resource)",
            "keys.holder_keys(resource)",
        ),
        tests=Tests("tests/redlock/test_scripts.py", "refuses_to_hand"),
    ),
    mutant(
        "redlock: a late vote does not tell the clock of its node",
        "a client counts a node whose clock has jumped, because it had never read it before",
        (
            "backends/redlock/transport/connections.py",
            "self.tell_late_vote(packed, reply)",
            "pass",
        ),
        tests=Tests("tests/redlock/test_late_votes.py", "sync and not async"),
    ),
    mutant(
        "redlock, asyncio: a late vote does not tell the clock of its node",
        "a client counts a node whose clock has jumped, because it had never read it before",
        (
            "backends/redlock/transport/aio.py",
            "self._transport.on_late_vote(node, vote, reply, self._sent, self._transport.now())",
            "pass",
        ),
        tests=Tests("tests/redlock/test_late_votes.py", "async"),
    ),
    mutant(
        "redlock: a round waits only for nodes that are not behind, however few these are",
        "a round ends with its time though all nodes have answered, and they are taken for hung",
        (
            "backends/redlock/transport/connections.py",
            "if without and len(behind) >= min(least, len(waiting) - least + 1):",
            "if without and not least:",
        ),
        tests=Tests("tests/redlock/test_late_votes.py", "hold_up"),
    ),
    mutant(
        "redlock: a release that went another way than its vote counts as carried out",
        "the claim stands on a node for its whole ttl, and others have one node less",
        ("backends/redlock/transport/connections.py", "if packed.crossed and reply == 0:", "if False:"),
        tests=Tests("tests/redlock/test_late_votes.py", "before_its_vote"),
    ),
    mutant(
        "redlock: a connection that broke is still read first",
        "a lock fails with a KeyError when one node of five is restarted",
        (
            "backends/redlock/transport/connections.py",
            "behind = [one for one in behind if one[0] != connection.fd]",
            "pass",
        ),
        tests=Tests("tests/redlock/test_late_votes.py", "unread"),
    ),
    mutant(
        "redlock: a quick vote does not see who shares the resource",
        "a reader and the holder of a plain lock of the same name are inside together",
        ("backends/redlock/wire/quick_votes.py", "parts == ACCEPTED", "parts[::2] == ACCEPTED[::2]"),
        tests=Tests("tests/redlock/test_scripts.py", "beside_sharers"),
    ),
    mutant(
        "redlock: a quick vote makes a number where there is none",
        "a node that lost its memory grants what others hold",
        ("backends/redlock/wire/quick_votes.py", 'bulk(b"XX") + bulk(b"GT")', 'bulk(b"GT") + bulk(b"GT")'),
        tests=Tests("tests/redlock/test_scripts.py", "memory_was_lost"),
    ),
    mutant(
        "redlock: a node that restarts without loss forgets its numbers",
        "a client whose clock is behind gets a lower token",
        (
            "backends/redlock/wire/checkin.lua",
            "redis.call('ZADD', quorum, exact(highest), 'floor')",
            "highest = 0",
        ),
        tests=Tests("tests/redlock/test_scripts.py", "restarts_without_loss"),
    ),
    mutant(
        "redlock: a claim that a quick vote entered beside others stays",
        "an evicted claim comes back, and a claim stands beside those that share",
        ("backends/redlock/wire/vote.lua", "if is(q, id) and (mark or q.n > 0) then", "if false then"),
        tests=Tests("tests/redlock/test_scripts.py", "beside_sharers"),
    ),
    mutant(
        "redlock: a client tries a quick vote again at once, whatever came of the last",
        "after an eviction each lock costs a round trip more, and three rounds instead of two for a clock that is behind",
        ("backends/redlock/algorithm/membership.py", "self._from(resource, now + BY_SCRIPT)", "pass"),
        tests=Tests("tests/redlock/test_quick_votes.py", "each_time or eviction"),
    ),
    mutant(
        "redlock: a clock with a digit less is sent as it is",
        "all replies on that connection go to the wrong requests",
        (
            "backends/redlock/algorithm/membership.py",
            'digits if len(digits) == CLOCK_DIGITS else b""',
            "digits",
        ),
        tests=Tests("tests/redlock/test_quick_votes.py", "before_2001"),
    ),
    mutant(
        "redlock: a quick vote that settles nothing is the last word",
        "who does not wait is told that the servers are down, not who holds the lock",
        ("backends/redlock/algorithm/claiming.py", "if not votes.undecided and (over or", "if (over or"),
        tests=Tests("tests/redlock/test_quick_votes.py", "does_not_wait"),
    ),
    mutant(
        "a client that is closed cuts off the releases of others",
        "a program that cancels all its tasks at its end leaves their claims behind, each for a whole ttl",
        ("_core/client.py", "if self._others_releasing():", "if not self.closed:"),
        tests=Tests("tests/redis/test_closing_beside_releases.py"),
    ),
    mutant(
        "asyncio: a task is resumed inside of another",
        "the loop knows one running task, and either of them is taken for the other",
        ("wakeups.py", "if task_of(loop) is not None or", "if task_of(loop) is loop or"),
        tests=Tests("tests/unit/test_wakeups.py", "another_task"),
    ),
    mutant(
        "asyncio: the tasks of one read depend on each other",
        "a task that ends the program leaves others behind for ever",
        ("wakeups.py", "if len(ready) > 1:", "if not ready:"),
        tests=Tests("tests/unit/test_wakeups.py", "as_in_asyncio"),
    ),
    mutant(
        "asyncio: tasks are resumed at once with nest_asyncio, too",
        "a lock inside a nested run of the loop waits for five seconds",
        ("wakeups.py", ' or "_nest_patched" in names_in_asyncio:', ":"),
        tests=Tests("tests/unit/test_wakeups.py", "may_run_the_loop"),
    ),
    mutant(
        "redis, asyncio: a connection goes on after an interrupt between a reply and its request",
        "every later request gets the answer to another, and a lock may be held that was not granted",
        (
            "backends/redis/transport/pipelined.py",
            'self.end(unreachable(self.place, "the program was interrupted while it read a reply"))',
            "pass",
        ),
        tests=Tests("tests/redis/test_multiplexed_order.py", "interrupt"),
    ),
    mutant(
        "asyncio: tasks are resumed at once below uvloop, too",
        "a program that calls sys.exit goes on, without its connection",
        ("wakeups.py", "isinstance(loop, asyncio.BaseEventLoop)", "True"),
        tests=Tests("tests/unit/test_wakeups.py", "uvloop"),
    ),
    mutant(
        "asyncio: a reply is set for a task that was cancelled",
        "the connection ends with an error of the future, and all other tasks with it",
        (
            "backends/redis/transport/multiplexed.py",
            "if not waiting.done():  # otherwise it was cancelled",
            "if True:  # otherwise it was cancelled",
        ),
        tests=Tests("tests/redis/test_multiplexed_order.py"),
    ),
]
