"""`sql`: prints the SQL that creates the tables of interlock, for databases in which programs may not
create anything.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable
from urllib.parse import SplitResult

from interlock import urls
from interlock.cli.output import Output
from interlock.errors import InvalidURL


def _postgresql(parts: SplitResult, role: str | None) -> str:
    from interlock.backends.sql.postgresql.open import schema_of_url

    schema = schema_of_url(parts)
    return schema.script() + ("" if role is None else f"\n{schema.grants(role)}")


def _mysql(parts: SplitResult, role: str | None) -> str:
    from interlock.backends.sql.mysql.address import schema_of_url

    schema = schema_of_url(parts)
    return schema.script() + ("" if role is None else f"\n{schema.grants(role)}")


DATABASES: dict[str, Callable[[SplitResult, str | None], str]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
}
"""By the scheme of the URL: returns the script, with the grants for a role if one is named."""


def sql(options: Namespace, output: Output) -> int:
    """Print the script; return the code to exit with."""
    url = options.target or options.url or os.environ.get("INTERLOCK_URL") or ""
    parts = urls.split(url)
    database = DATABASES.get(parts.scheme)
    if database is None:
        raise InvalidURL(
            f"{urls.redacted(url) or 'no URL'}: interlock sql is for "
            f"{', '.join(f'{name}://' for name in DATABASES)}"
        )
    script = database(parts, options.role)
    if output.json:
        output.document({"sql": script})
    else:
        output.line(script)
    return 0
