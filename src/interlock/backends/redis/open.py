"""From a URL, or a user's own client, to a store."""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode

from interlock.backends.redis.address import Address
from interlock.backends.redis.keys import Keys
from interlock.backends.redis.listener import Listener
from interlock.backends.redis.pool import Pool
from interlock.backends.redis.store import Plainly, RedisStore
from interlock.errors import InvalidURL
from interlock.ports import Runtime


def open_url(parts: SplitResult, runtime: Runtime, *, asynchronous: bool) -> RedisStore:
    """The store at `redis://`, `rediss://` or `unix://`; `?prefix=` is put before every key. Connects when used."""
    if parts.fragment:
        raise InvalidURL(f"{parts.scheme}:// takes no #fragment; write %23 for a # in a password")
    database = parts.path.strip("/")
    if parts.scheme != "unix" and database and not database.isdecimal():
        raise InvalidURL(f"{parts.scheme}://.../{database}: a database of Redis is a number, such as 0")
    try:
        _ = parts.port
    except ValueError:
        raise InvalidURL(f"{parts.scheme}://: the port must be a number up to 65535") from None
    options = parse_qsl(parts.query, keep_blank_values=True)
    prefix = dict(options).get("prefix", "")
    rest = urlencode([(name, value) for name, value in options if name != "prefix"])
    # Put together by hand: the standard library writes unix:/path, without the slashes.
    address = Address.of_url(f"{parts.scheme}://{parts.netloc}{parts.path}{'?' if rest else ''}{rest}")
    return open_address(address, prefix, runtime, asynchronous=asynchronous)


def open_client(client: Any, runtime: Runtime, *, asynchronous: bool) -> RedisStore:
    """The store behind a client of redis-py or valkey-py, of either colour, over connections of its own."""
    return open_address(Address.of_client(client), "", runtime, asynchronous=asynchronous)


def open_address(address: Address, prefix: str, runtime: Runtime, *, asynchronous: bool) -> RedisStore:
    keys, listener = Keys(prefix), Listener(address)
    if not asynchronous:
        return RedisStore(address.place, keys, Pool(address), listener, runtime, None)
    from interlock.backends.redis.link import Links  # here, not above: it needs asyncio

    twin = RedisStore(address.place, keys, Pool(address), listener, Plainly(runtime), None)
    return RedisStore(address.place, keys, Links(address), listener, runtime, twin)
