"""The SQL of the guards, read once from the files beside this one, and how names are quoted in it."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from interlock._support.package_text import sections, text_beside

_NAME = re.compile(r"[^\W\d][\w$]*")
# Names in quotes and texts, which may have signs of parameters in them; then parameters, and signs of the
# other style.
_TOKENS = re.compile(r"""("(?:[^"]|"")*"|`(?:[^`]|``)*`|'(?:[^']|'')*')|:(\w+)|%""")
_QUOTES = {"postgresql": '"', "sqlite": '"', "mysql": "`"}


@cache
def _sections(noun: str) -> dict[str, str]:
    """The statements of one file by name, without their comments."""
    return sections(text_beside(__spec__, noun + ".sql"))


def statement(noun: str, name: str, dialect: str, **parts: str) -> str:
    """Return a statement of one file, in the words of a database; `parts` fill the places in braces."""
    named = _sections(noun)
    found = named.get(f"{name}.{dialect}") or named[name]
    return found.format(**parts)


def quoted(name: str, dialect: str) -> str:
    """Return the name of a table or column, also `schema.table`, as it stands in a statement."""
    quote = _QUOTES[dialect]
    parts = name.split(".")
    if not 1 <= len(parts) <= 2 or not all(_NAME.fullmatch(part) for part in parts):
        raise ValueError(f"{name!r} is no name of a table or column: write name, or schema.name")
    return ".".join(f"{quote}{part}{quote}" for part in parts)


def condition(where: dict[str, Any], dialect: str) -> tuple[str, dict[str, Any]]:
    """Return a condition that names one row, and its parameters."""
    columns = [f"{quoted(column, dialect)} = :key{number}" for number, column in enumerate(where)]
    return " and ".join(columns), {f"key{number}": value for number, value in enumerate(where.values())}


def assignments(changes: dict[str, Any], dialect: str) -> tuple[str, dict[str, Any]]:
    """Return assignments, each with a comma after it, and their parameters."""
    columns = [f"{quoted(column, dialect)} = :value{number}, " for number, column in enumerate(changes)]
    return "".join(columns), {f"value{number}": value for number, value in enumerate(changes.values())}


@cache
def pyformat(sql: str) -> str:
    """Return the statement with `%(name)s` in the place of `:name`, as psycopg, PyMySQL and Django want
    it.
    """

    def token(found: re.Match[str]) -> str:
        return f"%({found[2]})s" if found[2] else found[0].replace("%", "%%")

    return _TOKENS.sub(token, sql)


@cache
def named(sql: str) -> str:
    """Return the statement as `sqlalchemy.text` wants it: a colon in a name begins no parameter."""

    def token(found: re.Match[str]) -> str:
        return found[1].replace(":", "\\:") if found[1] else found[0]

    return _TOKENS.sub(token, sql)
