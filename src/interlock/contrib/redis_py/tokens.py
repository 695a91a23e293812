"""redis-py's tokens: which claim a token stands for, as the holder's key tells it.

A lock's token is the id of its claim, or what the caller chose. The latter is kept in the claim's note and
never becomes its id: two programs that choose the same must exclude each other, and a claim that is repeated
does not.
"""

from __future__ import annotations

from inspect import isawaitable
from typing import Any

from interlock.backends.redis.wire.packing import RECORD
from interlock.errors import InvalidName


async def answer(reply: Any) -> Any:
    """The answer of a redis-py command, sync or async: that of a blocking client is there already."""
    return await reply if isawaitable(reply) else reply


def encoded(redis: Any, value: Any) -> bytes:
    """The bytes this client would send for `value`."""
    if isinstance(value, bytes):
        return value
    source = redis if hasattr(redis, "get_encoder") else redis.connection_pool
    found: bytes = source.get_encoder().encode(value)
    return bytes(found)


def resource(lock: Any) -> str:
    """The name of a lock as interlock's name: the same bytes on the server."""
    try:
        return encoded(lock.redis, lock.name).decode()
    except UnicodeDecodeError:
        raise InvalidName(f"{lock.name!r}: the name of a resource is UTF-8") from None


def note(token: bytes) -> str:
    """The note of a claim whose token was chosen by the caller."""
    try:
        return f"token={token.decode()}"
    except UnicodeDecodeError:
        return f"token=0x{token.hex()}"


def claim_of(value: bytes | None, token: bytes) -> bytes | None:
    """The id of the claim that stands in a holder's key, if the token is its own; None if it is another's.

    A key that redis-py's own lock wrote holds the token and nothing else.
    """
    if value is None or value == token:
        return value
    id, _, rest = value.partition(b"\n")
    record = RECORD.fullmatch(rest)
    if record is None:
        return None
    noted = record[7][: int(record[6])]
    return id if token == id or noted == note(token).encode() else None


async def standing(lock: Any, token: bytes) -> bytes | None:
    """The id of the claim that holds the lock now, if it is the token's. Asks the server."""
    value = await answer(lock.redis.get(lock.name))
    return claim_of(None if value is None else encoded(lock.redis, value), token)
