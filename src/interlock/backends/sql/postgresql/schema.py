"""Renders the SQL files for a schema and a prefix that the user chooses."""

from __future__ import annotations

import re
import zlib
from functools import cache

from interlock._support.package_text import text_beside
from interlock.errors import InvalidSetting

VERSION = 2  # of the functions; schema.sql says which tables they share with earlier ones
CLOCK = "extract(epoch from clock_timestamp())::float8"
PINNED = "set search_path = pg_catalog, pg_temp set row_security = off"
BY_KEY = "set enable_sort = off set enable_bitmapscan = off set enable_seqscan = off"
INSTALL_LOCK = 0x696E7465726C6F63  # "interloc": everybody who creates tables of interlock takes turns

TABLES = ("meta", "slot", "claim", "register", "bell", "register_gone")
FUNCTIONS = (
    *("enter", "draw", "ring", "notify", "advance", "nudge", "shrink", "patrol"),
    *("claim_step", "claim_long", "release_step", "release_long", "renew_step", "evict_step"),
    *("write_step", "find_step", "watch_step", "sweep_step"),
)

MAX_PREFIX_CHARACTERS = 63 - max(len(f"{name}_{VERSION}") for name in (*TABLES, *FUNCTIONS))
"""The bytes of a prefix, at most: PostgreSQL cuts longer names without a word."""


ALTERED = """
select c.relname || ' ' || f.found from pg_class c join pg_namespace n on n.oid = c.relnamespace, lateral (
  select 'is no table' as found where c.relkind not in ('r', 'p')
  union all select 'is not logged' where c.relpersistence <> 'p'
  union all select 'has policies that hide rows from this user' where row_security_active(c.oid)
  union all select 'has the trigger ' || t.tgname from pg_trigger t
    where t.tgrelid = c.oid and not t.tgisinternal and t.tgenabled <> 'D' and t.tgtype & 3 = 3
  union all select 'has the rule ' || r.rulename from pg_rewrite r
    where r.ev_class = c.oid and r.ev_enabled <> 'D' and c.relkind in ('r', 'p')
) f
where n.nspname = {schema} and c.relname in ({tables}) limit 1
"""
"""Asks what about our tables may drop or change what is written: a trigger before the change of a row, a
rule, a policy, a view in the place of a table, a table that a crash empties.
"""


@cache
def _file(name: str) -> str:
    return text_beside(__spec__, name)


def quoted(name: str) -> str:
    """An identifier as SQL takes it literally."""
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class Schema:
    """The names of one installation: a schema, and a prefix before each table and function in it.

    `clock` is an expression for the present instant; tests set one that they can move.
    """

    def __init__(self, schema: str = "interlock", prefix: str = "", clock: str = CLOCK) -> None:
        for what, name, most in (("schema", schema, 63), ("prefix", prefix, MAX_PREFIX_CHARACTERS)):
            if len(name.encode()) > most or "\0" in name or (what == "schema" and not name):
                raise InvalidSetting(f"{what}={name}: a name of PostgreSQL has 1 to {most} bytes")
        self.schema = schema
        self.prefix = prefix
        self.clock = clock

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, str, str]:
        return self.schema, self.prefix, self.clock

    def name(self, what: str) -> str:
        """The full name of a table, or of a function with the version that it belongs to."""
        if what == "schema":
            return quoted(self.schema)
        if what == "register_gone":  # an index is named without the schema: it belongs to that of its table
            return quoted(self.prefix + what)
        if what in FUNCTIONS:
            what = f"{what.removesuffix('_step')}_{VERSION}"
        return f"{quoted(self.schema)}.{quoted(self.prefix + what)}"

    def render(self, template: str) -> str:
        """The template with the names of this installation."""
        seed = (
            zlib.crc32(f"{self.schema}\0{self.prefix}".encode()) * 2
        )  # an even one: registers have the next

        def word(found: re.Match[str]) -> str:
            what = found[1]
            if what == "now":
                return self.clock
            if what == "by_key":
                return BY_KEY
            if what == "pinned":
                return PINNED
            if what == "version":
                return str(VERSION)
            return str(seed) if what == "seed" else self.name(what)

        return re.sub(r"@(\w+)@", word, template)

    @property
    def altered(self) -> str:
        """A query for one text that says what somebody has changed about the tables; null if nothing."""
        tables = ", ".join(_literal(self.prefix + table) for table in ("slot", "claim", "register"))
        return ALTERED.format(schema=_literal(self.schema), tables=tables)

    def script(self) -> str:
        """Everything that creates the tables and functions. It may run again, and by many at once."""
        return "\n".join(
            (
                "begin isolation level read committed;",
                (
                    "set local client_min_messages = warning;  -- nothing is said of tables that are there "
                    "already"
                ),
                "-- `if not exists` alone fails when many start at once: they take turns.",
                f"select pg_advisory_xact_lock({INSTALL_LOCK});",
                (
                    "-- A session that looked for the schema before it waited remembers that there is none, "
                    "until it next locks a table."
                ),
                "lock table pg_catalog.pg_namespace in access share mode;",
                self.render(_file("schema.sql")),
                self.render(_file("functions.sql")),
                "commit;",
            )
        )

    def grants(self, role: str) -> str:
        """The rights that a program needs which may not create anything itself."""
        functions = ", ".join(self.name(function) for function in FUNCTIONS)
        to = f"to {quoted(role)};"
        tables = ", ".join(self.name(table) for table in ("claim", "register", "bell"))
        return "\n".join(
            (
                f"revoke all on function {functions} from public;",
                f"grant usage on schema {self.name('schema')} {to}",
                f"grant execute on function {functions} {to}",
                f"grant select, insert, update, delete on {tables} {to}",
                f"grant select, update on {self.name('slot')} {to}",
                f"grant select on {self.name('meta')} {to}",
            )
        )
