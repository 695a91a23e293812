"""Deliberate bugs in the lock file."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Tests, agreeing, mutant

CLAIMS = "backends/sqlite/claims.sql"
ANSWERS = agreeing("answers_as_the_reference")
WOKEN = Tests("tests/sqlite/test_waiting.py", "in_another_process or rings_only_the_next")

MUTANTS: list[Mutant] = [
    mutant(
        "sqlite: release without compare",
        "a stranger's release frees the holder's lock",
        (
            CLAIMS,
            "where resource = ?1 and id = ?2 and state = 1 and bell",
            "where resource = ?1 and state = 1 and bell",
        ),
        (CLAIMS, "  and not exists (select 1 from claim where resource = ?1 and id <> ?2)\n", ""),
        tests=ANSWERS,
    ),
    mutant(
        "sqlite: what lapsed can be renewed",
        "a holder that lapsed comes back",
        (CLAIMS, "  and lapses_at > ?6 and lapses_at <= ?6 + ttl + ?7;", "  and lapses_at <= ?6 + ttl + ?7;"),
        tests=ANSWERS,
    ),
    mutant(
        "sqlite: renewal may shorten",
        "a late, short renewal takes away what the holder counts on",
        (CLAIMS, "    lapses_at = max(lapses_at, ?6 + ?5),", "    lapses_at = ?6 + ?5,"),
        tests=ANSWERS,
    ),
    mutant(
        "sqlite: tokens follow the clock alone",
        "a clock set back gives a token twice",
        (
            "backends/sqlite/claims.py",
            "        token = max(token, last + 1)",
            "        token = max(token, 1)",
        ),
        (CLAIMS, "where last < ?2\n", "where last < ?2 + 9000000000000000\n"),
        tests=ANSWERS,
    ),
    mutant(
        "sqlite: who is let in is not rung",
        "every hand-off waits for a lapse",
        (
            "backends/sqlite/queue.py",
            '        tx.execute(CLAIMS["admit"], (resource, row.token, tx.now))\n        tx.call(row.bell, "c" + row.id)\n',
            '        tx.execute(CLAIMS["admit"], (resource, row.token, tx.now))\n',
        ),
        tests=WOKEN,
    ),
    mutant(
        "sqlite: a register is written whatever its version",
        "of two updates at once one is lost",
        ("backends/sqlite/registers.py", "    if old.version != version:", "    if False:"),
        tests=ANSWERS,
    ),
]
