"""The store on Redis for the shared suites."""

from __future__ import annotations

from urllib.parse import urlsplit
from uuid import uuid4

import redis

from interlock.testing.servers.redis import steady
from tests.field.kinds import Kind


def _scan(place: str, client: redis.Redis) -> list[bytes]:
    prefix = urlsplit(place).query.partition("=")[2].encode()
    return [name for name in client.scan_iter(count=1000) if prefix in name]


def wipe(place: str) -> None:
    with redis.Redis(port=steady().port) as client:
        if names := _scan(place, client):
            client.delete(*names)


def keys(place: str) -> int:
    with redis.Redis(port=steady().port) as client:
        return len(_scan(place, client))


KIND = Kind(lambda: steady().url(f"{uuid4().hex}:"), wipe=wipe, keys=keys)
