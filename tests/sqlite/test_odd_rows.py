"""Rows that interlock did not write, since SQLite stores any type in any column: every call ends with an answer or an error of ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import interlock

COLUMNS = {
    "claim": "resource token id state permits capacity ttl lapses_at since rung bell life note who",
    "register": "name value version writer lapses_at",
    "meta": "last boot booted",
    "bell": "topic address lapses_at",
}
ODD = {
    "a text": "'abc'",
    "bytes": "x'fffe'",
    "a fraction": "1.5",
    "infinity": "9e999",
    "no text": "cast(x'ff41' as text)",
    "below 0": "-5",
    "the highest number": "9223372036854775807",
}
BELL = "@interlock/1/0123456789abcdef#0123456789abcdef0123456789abcdef"

Calls = dict[str, Callable[[], Any]]


def calls_of(client: interlock.Client, lease: interlock.Lease) -> Calls:
    return {
        "acquire": lambda: client.lock("x").acquire(timeout=0.02),
        "acquire another": lambda: client.lock("y").acquire(blocking=False),
        "inspect": lambda: str(client.inspect("x")),
        "scan": lambda: list(client.scan()),
        "write": lambda: client.guard("r").accept(50),
        "read": lambda: client.guard("r").highest(),
        "evict": lambda: client.evict("x", reason="why"),
        "renew": lease.renew,
        "release": lease.release,
    }


def raw(call: Callable[[], Any]) -> str:
    """The error of a call, if it is none of ours."""
    try:
        call()
    except interlock.InterlockError as error:
        return "" if str(error) else "an error without a sentence"
    except Exception as error:
        return repr(error)
    return ""


def changes() -> list[str]:
    changed = [
        f"update {table} set {column} = {odd}"
        for table, columns in COLUMNS.items()
        for column in columns.split()
        for odd in ODD.values()
    ]
    return [*changed, *(f"delete from {table}" for table in COLUMNS)]


@pytest.mark.parametrize("table", COLUMNS)
def test_odd_rows_are_errors_of_ours(table: str, tmp_path: Path) -> None:
    found: dict[tuple[str, str], str] = {}
    for number, change in enumerate(
        change for change in changes() if change.split()[1] == table or f"from {table}" in change
    ):
        path = tmp_path / f"{number}.db"
        with ClosingQuietly(interlock.connect(f"sqlite:///{path}")) as client:
            lease = client.lock("x").acquire()
            assert lease is not None
            client.guard("r").accept(40)
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("insert into bell values ('qx', ?, 9e18)", [BELL])
                with suppress(sqlite3.IntegrityError):
                    other.execute(change)
            found.update({(change, name): raw(call) for name, call in calls_of(client, lease).items()})
    assert {case: error for case, error in found.items() if error} == {}


class ClosingQuietly:
    """A client whose close may meet odd rows as well; that is an error of ours, too."""

    def __init__(self, client: interlock.Client) -> None:
        self._client = client

    def __enter__(self) -> interlock.Client:
        return self._client

    def __exit__(self, *_: object) -> None:
        with suppress(interlock.InterlockError):
            self._client.close()
