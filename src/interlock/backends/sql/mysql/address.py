"""What a URL of MariaDB or MySQL says:
`mysql://user:password@host:port/database?prefix=locks_&connections=4`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote

from interlock.backends.sql.mysql.connection import SESSION
from interlock.backends.sql.mysql.schema import DEFAULT_PREFIX, Schema
from interlock.errors import InvalidSetting, InvalidURL

PORT = 3306
CONNECTIONS = 4
MAX_CONNECTIONS = 1000
TLS = ("on", "verify")
OPTIONS = ("prefix", "connections", "unix_socket", "tls", "ssl_ca", "ssl_cert", "ssl_key")


class Address(NamedTuple):
    """Where a server is and how to log in, for both drivers."""

    label: str  # for messages: without the password
    settings: dict[str, Any]  # of our own connections; empty until an engine has lent its first one
    schema: Schema
    connections: int  # that the calls of one client use at the same time


def from_url(parts: SplitResult) -> Address:
    """Raises `InvalidURL` or `InvalidSetting`, which say what to write."""
    try:
        port = parts.port or PORT
    except ValueError:
        raise InvalidURL(f"{parts.scheme}://: the port must be a number from 1 to 65535") from None
    database = unquote(parts.path[1:])
    if not database or "/" in database or parts.fragment:
        raise InvalidURL(
            f"{parts.scheme}:// needs a database: {parts.scheme}://user:password@host:{PORT}/database"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := [name for name in options if name not in OPTIONS]:
        raise InvalidURL(f"{parts.scheme}:// knows no option {unknown[0]}; it knows {', '.join(OPTIONS)}")
    host, user = parts.hostname or "localhost", unquote(parts.username or "") or "root"
    settings: dict[str, Any] = {
        "host": host,
        "port": port,
        "user": user,
        # Both drivers encode a password as Latin-1. This makes them send UTF-8, as other clients do.
        "password": unquote(parts.password or "").encode().decode("latin-1"),
        "database": database,
    }
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if path := options.get("unix_socket"):
        settings["unix_socket"] = where = path
    if (tls := _tls(options)) is not None:
        settings["ssl"] = tls
    label = f"{parts.scheme}://{user}@{where}/{database}"
    return Address(
        label,
        settings | session(),
        schema_of_url(parts),
        _connections_option(options.get("connections", str(CONNECTIONS))),
    )


def schema_of_url(parts: SplitResult) -> Schema:
    """The names of our tables, from the option `prefix`."""
    return Schema(dict(parse_qsl(parts.query, keep_blank_values=True)).get("prefix", DEFAULT_PREFIX))


def session() -> dict[str, Any]:
    """What every connection of ours is set to."""
    return {"charset": "utf8mb4", "autocommit": True, "init_command": SESSION, "program_name": "interlock"}


def _connections_option(said: str) -> int:
    if not said.isdecimal() or not 1 <= int(said) <= MAX_CONNECTIONS:
        raise InvalidSetting(f"connections={said}: write a number from 1 to {MAX_CONNECTIONS}")
    return int(said)


def _tls(options: Mapping[str, str]) -> Any:
    """The TLS context that the options ask for; None if they ask for none."""
    files = {name: path for name, path in options.items() if name.startswith("ssl_")}
    mode = options.get("tls", "verify" if files else "")
    if not mode:
        return None
    if mode not in TLS:
        raise InvalidURL(f"tls={mode}: write verify, or on for a server whose certificate nobody has signed")
    import ssl  # here, not above: most programs do without

    try:
        context = ssl.create_default_context(cafile=files.get("ssl_ca"))
        if "ssl_cert" in files:
            context.load_cert_chain(files["ssl_cert"], files.get("ssl_key"))
    except OSError as error:
        raise InvalidSetting(
            f"what TLS needs cannot be read ({error}); check ssl_ca, ssl_cert and ssl_key"
        ) from None
    if mode == "on":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
