"""Turns calls of the `Store` interface into arguments of steps, and rows of steps into answers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from interlock._core.admission import admitted
from interlock.backends.sql.steps import IN, Rows
from interlock.errors import SettingsMismatch
from interlock.model import (
    Busy,
    Claim,
    ClaimAnswer,
    Gone,
    Granted,
    NoAnswer,
    Queue,
    RenewAnswer,
    Standing,
    Versioned,
)


def claim_arguments(claim: Claim, bell: str) -> tuple[Any, ...]:
    """Those of `steps.CLAIM`."""
    # fmt: off
    return (
        claim.resource, claim.id, claim.ttl, claim.permits, claim.capacity, claim.queued, claim.place_ttl,
        claim.block, bell, claim.note, claim.who,
    )
    # fmt: on


def claim_answer(claim: Claim, row: Sequence[Any]) -> tuple[ClaimAnswer, int | None]:
    """The answer in the row of `steps.CLAIM`, and the token of the place if it waits in the queue."""
    if row[0] == "g":
        return Granted(row[1], claim.ttl), None
    answer, token, ahead, retry, reason, _, *first = row
    if answer == "b":
        return Busy(ahead, max(0.0, seconds(retry or 0.0)), _holder(first)), token
    if answer == "e":
        return Gone(True, reason or ""), None
    raise SettingsMismatch(claim.resource, claim.capacity, ahead)


def _holder(first: Sequence[Any]) -> Standing | None:
    id, token, permits, age, lapses_in, note, who = first
    if id is None:
        return None
    return Standing(
        text(id), token, permits, True, max(0.0, seconds(age)), seconds(lapses_in), text(note), text(who)
    )


def not_renewed(row: Sequence[Any]) -> RenewAnswer:
    """The answer in a row of `steps.RENEW` that is not `r`."""
    answer, reason, _ = row
    if answer == "e":
        return Gone(True, reason or "")
    if answer == "n":
        return NoAnswer(reason or "the claim's row is locked by another transaction")
    return Gone()


def standings(rows: Rows) -> tuple[Standing, ...]:
    """The rows of `steps.QUEUE` as an operator sees them; the rule of admission says which of them hold."""
    if not rows:
        return ()
    inside = admitted([row[2] for row in rows], rows[0][3])
    return tuple(
        [
            Standing(
                text(id),
                token,
                permits,
                index < inside,
                max(0.0, seconds(age)),
                seconds(lapses_in),
                text(note),
                text(who),
            )
            for index, (token, id, permits, _, age, lapses_in, note, who) in enumerate(rows)
        ]
    )


def queue(resource: str, rows: Rows) -> Queue:
    return Queue(resource, rows[0][3] if rows else 0, standings(rows))


def evicted(rows: Rows) -> list[Standing]:
    """The victims in the rows of `steps.EVICT`: as `queue`, with a last column that says whether each was
    in.
    """
    return [
        Standing(
            text(id),
            token,
            permits,
            bool(inside),
            max(0.0, seconds(age)),
            seconds(lapses_in),
            text(note),
            text(who),
        )
        for token, id, permits, _, age, lapses_in, note, who, inside in rows
    ]


def text(value: object) -> str:
    """The text in a column as str, whatever it is: others may write to the table, and SQLite stores bytes and
    numbers in any column.
    """
    return value if isinstance(value, str) else repr(value)


def seconds(value: Any) -> float:
    """Seconds of a row as a number that can be shown and compared; 0 for NaN and infinity, which
    PostgreSQL also stores.
    """
    number = float(value)
    return number if isfinite(number) else 0.0


def register(rows: Rows) -> Versioned:
    """The register in the rows of `steps.READ` or `steps.WRITE`."""
    for value, version in rows:
        return Versioned(value, version)
    return Versioned(None, 0)


def changed(busy: Busy | None, state: int, rung: object) -> bool:
    """Whether something has happened to a claim of which `steps.FIND` tells this, since it was answered
    `busy`, or granted.
    """
    return busy is not None and (bool(rung) or state == IN)
