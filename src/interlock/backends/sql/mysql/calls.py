"""Turns steps into SQL, and results into the rows of steps. Pure.

Text goes to the server as hexadecimal literals, which are plain bytes there. So nothing has to be escaped,
and neither the character set of a connection nor its `sql_mode` matters, also where the connection is a
user's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from interlock.backends.sql import steps
from interlock.backends.sql.mysql.schema import Schema
from interlock.backends.sql.steps import Rows

Results: TypeAlias = Sequence[Rows]
"""The result sets of one call, in order, without those of statements that return no rows."""

NOTHING = (None,) * 11
"""The columns of a claim's answer beyond its letter and its token."""


def literal(value: object) -> str:
    """A value as SQL."""
    if isinstance(value, str):
        return f"x'{value.encode().hex()}'"
    if value is None:
        return "null"
    if value is True or value is False:
        return "1" if value else "0"
    return repr(value)


def beyond(prefix: str) -> str | None:
    """The least name above all names with this prefix; None if there is none."""
    for index in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[index]) + 1
        if code <= 0x10FFFF:
            return prefix[:index] + chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)
    return None


def _items(items: Sequence[Sequence[Any]]) -> str:
    """The renewals as one text: see the procedure `renew`."""
    texts = [
        f"{resource.encode().hex()},{id.encode().hex()},{ttl!r},{token},{int(waiting)},{'-' if note is None else note.encode().hex()},"  # noqa: E501
        f"{'-' if permits is None else permits};"
        for resource, id, ttl, note, permits, token, waiting in items
    ]
    return f"'{''.join(texts)}'"


def _claim_arguments(args: Sequence[Any]) -> str:
    resource, id, ttl, permits, capacity, queued, place_ttl, block, bell, note, who = args
    return (
        f"x'{resource.encode().hex()}', x'{id.encode().hex()}', {ttl!r}, {permits}, {capacity}, "
        f"{int(queued)}, {place_ttl!r}, {block}, x'{bell.encode().hex()}', x'{note.encode().hex()}', "
        f"x'{who.encode().hex()}'"
    )


def _release_arguments(args: Sequence[Any]) -> str:
    resource, id, linger, bell, late, token = args
    return (
        f"x'{resource.encode().hex()}', x'{id.encode().hex()}', {linger!r}, x'{bell.encode().hex()}', "
        f"{int(late)}, {token}"
    )


def _plain_arguments(args: Sequence[Any]) -> str:
    return ", ".join([literal(value) for value in args])


def _names_arguments(args: Sequence[Any]) -> str:
    prefix, after, limit = args
    return _plain_arguments((prefix, beyond(prefix), after, limit))


_ARGUMENTS: dict[str, Callable[[Sequence[Any]], str]] = {
    steps.CLAIM: _claim_arguments,  # in one go, and so is the next: they are by far the commonest
    steps.RELEASE: _release_arguments,
    steps.RENEW: lambda args: f"{_items(args[0])}, {literal(args[1])}",
    steps.WATCH: lambda args: _plain_arguments((args[0] + args[1], *args[2:])),
    steps.NAMES: _names_arguments,
}


def call(schema: Schema, step: str, args: Sequence[Any]) -> str:
    """The statement that runs a step."""
    if step == steps.EXAMINE:
        (question,) = args
        return str(question).replace("@claim@", literal(f"{schema.prefix}claim"))
    return schema.call(step, _ARGUMENTS.get(step, _plain_arguments)(args))


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _plain(results: Results) -> Rows:
    return [tuple([_text(value) for value in row]) for row in results[0]] if results else ()


def _claim(results: Results) -> Rows:
    (row,) = results[0]
    if len(row) == 1:  # the quick answer
        return [("g", row[0], *NOTHING)]
    return _plain(results)


def _release(results: Results) -> Rows:
    return _plain(results) if results else [(1, None)]


def _renew(results: Results) -> Rows:
    """One row for each renewal; the messages stand in the first."""
    ((answers, reasons, messages),) = _plain(results)
    given = iter(reasons.split(","))
    rows: list[tuple[str, str | None, str | None]] = []
    for answer in answers:
        reason = bytes.fromhex(next(given)).decode() if answer == "e" else None
        rows.append((answer, reason, None if rows else messages))
    return rows


def _evict(results: Results) -> Rows:
    """One row for each victim, from the text of the procedure `evict`."""
    ((answer,),) = _plain(results)
    rows: list[tuple[Any, ...]] = []
    for victim in answer.split(";")[:-1]:
        token, id, permits, capacity, age, lapses_in, note, who, inside = victim.split(",")
        numbers = (int(permits), int(capacity), float(age), float(lapses_in))
        rows.append((int(token), _unhexed(id), *numbers, _unhexed(note), _unhexed(who), int(inside)))
    return rows


def _unhexed(text: str) -> str:
    return bytes.fromhex(text).decode()


_ROWS: dict[str, Callable[[Results], Rows]] = {
    steps.CLAIM: _claim,
    steps.RELEASE: _release,
    steps.RENEW: _renew,
    steps.EVICT: _evict,
}


def rows(step: str, results: Results) -> Rows:
    """The rows of a step."""
    return _ROWS.get(step, _plain)(results)
