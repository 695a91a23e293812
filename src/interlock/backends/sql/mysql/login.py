"""Logging in to a server that may not be the right one: the client sends no password in clear, and nothing
without the TLS that was asked for.
"""

from __future__ import annotations

from typing import Any

from interlock.errors import StoreUnfit

CLEAR_TEXT = frozenset(("mysql_clear_password", "dialog"))
"""Ways of authentication in which the client sends the password as it is."""

TLS_OFFERED = 0x0800  # CLIENT_SSL, of the abilities in the server's greeting


def check_greeting(connection: Any, label: str, *, demanded: bool) -> None:
    """Refuse a server that offers no TLS if the client demands it; some versions of both drivers go on
    without.
    """
    if demanded and not connection.server_capabilities & TLS_OFFERED:
        raise StoreUnfit(f"{label}: the server offers no TLS, which the URL or the engine asks for")


def check_plugin(label: str, plugin: bytes | str, *, trusted: bool) -> None:
    """Refuse to send the password in clear to a server that may be anybody."""
    name = plugin.decode("ascii", "replace") if isinstance(plugin, bytes) else plugin
    if name in CLEAR_TEXT and not trusted:
        raise StoreUnfit(
            f"{label}: the server asks for the password in clear ({name}), which it gets only over TLS with "
            "a checked certificate: write ?tls=verify"
        )


def trusted(context: Any, unix_socket: object) -> bool:
    """Whether the other end is certainly the server: it is on this machine, or has shown a certificate for
    its name.
    """
    if unix_socket:
        return True
    import ssl  # here, not above: most programs do without

    return context is not None and context.verify_mode == ssl.CERT_REQUIRED and bool(context.check_hostname)
