"""The options that URLs of one server, of sentinels and of a Cluster have in common."""

from __future__ import annotations

from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from interlock.backends.redis.replicated import Replicas, checked_replicas
from interlock.errors import InvalidURL

MISSPELT = "the port must be a number up to 65535, and an address of IPv6 stands in brackets: [::1]:6379"


def options(parts: SplitResult) -> tuple[str, Replicas | None, str]:
    """The prefix, the replicas wanted, and the query string with the options of redis-py."""
    options = parse_qsl(parts.query, keep_blank_values=True)
    ours = dict(options)
    replicas = checked_replicas(ours["replicas"]) if "replicas" in ours else None
    if "notices" in ours and not parts.scheme.endswith("+cluster"):
        raise InvalidURL(
            f"notices={ours['notices']}: only a Cluster, redis+cluster://, has this choice; leave it out"
        )
    known = ("prefix", "replicas", "notices")
    rest = urlencode([(name, value) for name, value in options if name not in known])
    return ours.get("prefix", ""), replicas, rest


def check_database(parts: SplitResult, database: str) -> None:
    if database and not database.isdecimal():
        raise InvalidURL(f"{parts.scheme}://: a database of Redis is a number, such as 0")


def host_and_port(parts: SplitResult, text: str, port: int) -> tuple[str, int]:
    try:
        host = urlsplit(f"//{text}")
        return host.hostname or "localhost", host.port or port
    except ValueError:
        raise InvalidURL(f"{parts.scheme}://: {MISSPELT}") from None
