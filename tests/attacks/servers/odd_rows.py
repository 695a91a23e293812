"""Rows that interlock did not write, on a server whose columns have types: every call ends with an answer or an error of ours."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import interlock

Change = Callable[[str, str], None]
"""Runs a statement on a table: `update {} set token = -5` on "claim", for instance."""

NUMBERS = "token state permits capacity ttl lapses_at since"
TEXTS = "id note who bell"


def raw(call: Callable[[], Any]) -> str:
    """The error of a call, if it is none of ours."""
    try:
        call()
    except interlock.InterlockError as error:
        return "" if str(error) else "an error without a sentence"
    except Exception as error:
        return repr(error)
    return ""


def calls_of(client: interlock.Client, name: str, lease: interlock.Lease) -> dict[str, Callable[[], Any]]:
    return {
        "acquire": lambda: client.lock(name).acquire(timeout=0.02),
        "inspect": lambda: str(client.inspect(name)),
        "scan": lambda: list(client.scan()),
        "read": lambda: client.guard(name).highest(),
        "write": lambda: client.guard(name).accept(50),
        "evict": lambda: client.evict(name, reason="why"),
        "renew": lease.renew,
        "release": lease.release,
    }


class OddRows:
    """Needs the fixtures `url`, and `change`, which returns quietly if the server refuses the change."""

    infinite: tuple[str, ...] = ("-5", "2000000000", "1e300")

    def test_odd_rows_are_errors_of_ours(self, url: str, change: Change) -> None:
        changes = [
            ("claim", f"update {{}} set {column} = {odd}")
            for column in NUMBERS.split()
            for odd in self.infinite
        ]
        changes += [("claim", f"update {{}} set {column} = '\\u00ff{{{{'") for column in TEXTS.split()]
        changes += [
            ("register", f"update {{}} set {part}")
            for part in ("value = 'x'", "value = '[1]'", "version = -5")
        ]
        found: dict[tuple[str, str], str] = {}
        with interlock.connect(url) as client:
            for number, (table, statement) in enumerate(changes):
                name = f"x{number}"
                lease = client.lock(name).acquire()
                assert lease is not None
                client.guard(name).accept(40)
                change(table, statement)
                calls = calls_of(client, name, lease)
                found.update({(statement, call): raw(make) for call, make in calls.items()})
                change("claim", "delete from {}")
                change("register", "delete from {}")
            with suppress(interlock.InterlockError):
                client.close()
        odd = [f"{statement}: {call}: {error}" for (statement, call), error in found.items() if error]
        assert not odd, "\n".join(odd)
