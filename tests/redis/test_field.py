"""Problems that users of other locks report, and what interlock does instead, on Redis."""

from __future__ import annotations

from urllib.parse import urlsplit
from uuid import uuid4

import redis

from interlock.testing.conformance import suites
from interlock.testing.servers.redis import steady
from tests.field.kinds import Kind
from tests.field.sentences import FIELD


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


REDIS = Kind(lambda: steady().url(f"{uuid4().hex}:"), wipe=wipe, keys=keys)

globals().update(suites(REDIS, FIELD))
