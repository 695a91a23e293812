"""How each step is sent to PostgreSQL, and how its answer is read. Pure.

Parameters and results cross as text: `run` in `connection` needs no type adaptation then, which would cost
more than the step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from interlock.backends.sql import steps
from interlock.backends.sql.postgresql.schema import Schema
from interlock.backends.sql.steps import Rows
from interlock.errors import InvalidSetting

Values: TypeAlias = list[list[Any]]
"""The rows of a result, as bytes of text."""


class Statement(NamedTuple):
    """One step: its name as a prepared statement, its SQL, how arguments become parameters, and how a
    result becomes rows.
    """

    name: bytes
    sql: bytes
    pack: Callable[[Sequence[Any]], list[bytes | None]]
    unpack: Callable[[Values], Rows]


def text(value: Any) -> bytes | None:
    """A parameter as PostgreSQL reads it."""
    if value is None:
        return None
    if value is True or value is False:
        return b"t" if value else b"f"
    if not isinstance(value, str):
        return repr(value).encode()
    if "\0" in value:
        raise InvalidSetting("PostgreSQL cannot keep a text with a NUL character")
    return value.encode()


def _plain(args: Sequence[Any]) -> list[bytes | None]:
    return [text(value) for value in args]


def _array(values: Sequence[Any]) -> bytes:
    """An array of PostgreSQL: every element is quoted, so that nothing in it has a meaning."""
    parts: list[bytes] = []
    for value in values:
        one = text(value)
        parts.append(
            b"NULL" if one is None else b'"' + one.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
        )
    return b"{" + b",".join(parts) + b"}"


def _renewals(args: Sequence[Any]) -> list[bytes | None]:
    items, bell = args
    # Mostly there are neither notes nor permits. Where `array_nulls` is off, a NULL among others would be a
    # text.
    columns = [None if set(column) == {None} else _array(column) for column in zip(*items, strict=True)]
    return [*columns, text(bell)]


def _names(args: Sequence[Any]) -> list[bytes | None]:
    prefix, after, limit = args
    return _plain((prefix, after, limit, beyond(prefix)))


def beyond(prefix: str) -> str | None:
    """The least text above every name with this prefix; None if there is none."""
    for index in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[index]) + 1
        if code <= 0x10FFFF:
            return prefix[:index] + chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)
    return None


NOTHING = (None,) * 11


def _claimed(values: Values) -> Rows:
    answer = values[0][0]
    assert answer is not None
    if answer[:1] == b"g":
        return (("g", int(answer[1:]), *NOTHING),)
    return (json.loads(answer),)


def _released(values: Values) -> Rows:
    answer = values[0][0]
    assert answer is not None
    return ((answer[:1] == b"t", answer[2:].decode()),)


def _renewed(values: Values) -> Rows:
    """One row for each item; the messages stand in the first.

    If all were renewed, the answer is only their number, and messages.
    """
    answer = values[0][0]
    assert answer is not None
    if answer[:1] == b"r":
        number, _, messages = answer[1:].partition(b"\n")
        return (("r", None, messages.decode()), *(("r", None, None),) * (int(number) - 1))
    rows: Rows = json.loads(answer)
    return rows


def _json_rows(values: Values) -> Rows:
    answer = values[0][0]
    rows: Rows = () if answer is None else json.loads(answer)
    return rows


def _json_row(values: Values) -> Rows:
    answer = values[0][0]
    return () if answer is None else (json.loads(answer),)


def _queue(values: Values) -> Rows:
    return [
        (
            int(v[0]),
            v[1].decode(),
            int(v[2]),
            int(v[3]),
            float(v[4]),
            float(v[5]),
            v[6].decode(),
            v[7].decode(),
        )
        for v in values
    ]


def _strings(values: Values) -> Rows:
    return [(value.decode(),) for (value,) in values if value is not None]


def _register(values: Values) -> Rows:
    return [(None if value is None else value.decode(), int(version or b"0")) for value, version in values]


def _facts(values: Values) -> Rows:
    return [(name.decode(), (value or b"").decode(errors="replace")) for name, value in values]


def _none(values: Values) -> Rows:
    return ()


QUEUE = """with clock as materialized (select @now@ as t)
select token, id, permits, capacity, t - since, least(lapses_at - t, ttl), note, who from @claim@, clock
where resource = $1 and state < 2 and lapses_at > t order by token limit $2"""
NAMES = """with clock as materialized (select @now@ as t)
select distinct resource from @claim@, clock where resource >= $1 and resource > $2 and ($4::text is null or resource < $4)
and state < 2 and lapses_at > t order by resource limit $3"""  # noqa: E501
READ = "select value, version from @register@ where name = $1 and (lapses_at is null or lapses_at > @now@)"


EXAMINE = """select name, setting from pg_settings where name = any (string_to_array($1, ','))
union all select 'in_recovery', pg_is_in_recovery()::text
union all select 'notify_queue', pg_notification_queue_usage()::text
union all select 'standbys', count(*)::text from pg_stat_replication
union all select 'backend_pid', pg_backend_pid()::text
union all select 'claim_persistence', relpersistence::text from pg_class
where oid = to_regclass('@claim@')"""


UNFLUSHED = {
    "strict": frozenset[str](),
    "durable": frozenset({steps.SWEEP, steps.WATCH}),
    "relaxed": frozenset(steps.ALL),
}
"""The steps whose commit never waits for the disk, for each durability; of releases see `LONE_RELEASE`.

Swept rows are swept again, and clients watch again, because their connections have ended with the server.
"""

FLUSHED = (
    "when current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'on', true) end"
)
"""Makes this commit wait for the disk even if the server, the role or the session has switched that off.

Higher levels stay as they are.
"""

LONE_RELEASE = f"""select answer, case when answer = 'tl' then set_config('synchronous_commit', 'off', true) {FLUSHED}
from (select {{}} as answer offset 0) released"""  # noqa: E501
"""A release that lets nobody in does not wait for the disk, unless it is strict: nobody relies on it.

Whatever is claimed later has a later commit, and waits for the disk with all that was committed before it. If
the server crashes before that, the released claim stands again and lapses, as that of a dead holder does. A
release that lets a waiter in is a grant, and a release that lingers is a promise: both are on the disk before
anybody hears of them.
"""


def statements(schema: Schema, durability: str = "durable") -> dict[str, Statement]:
    """The statements of all steps."""

    def call(step: str, count: int) -> str:
        called = f"{schema.name(step + '_step')}({', '.join(f'${n}' for n in range(1, count + 1))})"
        if step in UNFLUSHED[durability]:  # read at the commit; it ends with the transaction of the statement
            return f"select {called}, set_config('synchronous_commit', 'off', true)"
        if step == steps.RELEASE and durability != "strict":
            return LONE_RELEASE.format(called)
        return f"select {called}, case {FLUSHED}"

    # fmt: off
    table: dict[str, tuple[str, Callable[[Sequence[Any]], list[bytes | None]], Callable[[Values], Rows]]] = {
        steps.CLAIM: (call("claim", 11), _plain, _claimed),
        steps.RELEASE: (call("release", 6), _plain, _released),
        steps.RENEW: (call("renew", 8), _renewals, _renewed),
        steps.EVICT: (call("evict", 5), _plain, _json_rows),
        steps.QUEUE: (schema.render(QUEUE), _plain, _queue),
        steps.NAMES: (schema.render(NAMES), _names, _strings),
        steps.READ: (schema.render(READ), _plain, _register),
        steps.WRITE: (call("write", 6), _plain, _json_row),
        steps.FIND: (call("find", 4), _plain, _json_row),
        steps.WATCH: (call("watch", 4), _plain, _none),
        steps.SWEEP: (call("sweep", 3), _plain, _json_row),
        steps.EXAMINE: (schema.render(EXAMINE), _plain, _facts),
    }
    # fmt: on
    return {
        step: Statement(f"interlock_{step}".encode(), sql.encode(), pack, unpack)
        for step, (sql, pack, unpack) in table.items()
    }
