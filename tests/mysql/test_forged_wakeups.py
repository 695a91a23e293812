"""Whoever may write into the table of messages makes no holder."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from interlock.testing.servers.mysql import Server
from tests.attacks.servers.forged import Forge, Forged
from tests.patience import until


@pytest.fixture
def forge(server: Server, url: str) -> Forge:
    prefix = parse_qs(urlsplit(url).query)["prefix"][0]

    def send(junk: bytes) -> None:
        listening = f"select 1 from {prefix}claim where state = 0 and bell <> ''"
        until(lambda: server.run("use app", listening))
        server.run(
            "use app",
            f"insert into {prefix}mail (bell, message, sent) "
            f"select bell, concat('c', id, ' ', token, x'{junk.hex()}'), 0 from {prefix}claim where state = 0",
        )

    return send


class TestForged(Forged):
    pass
