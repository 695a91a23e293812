"""Attacks between a client and a real server: bad links, lost and late messages, other servers, refused certificates."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

import interlock
from interlock import aio
from interlock.errors import InterlockError, StoreUnavailable
from interlock.testing.lag import at_most, stretched
from interlock.testing.servers.proxy import Mode, Proxy
from tests.attacks.servers.site import Site, nothing_left
from tests.fake_server import answering
from tests.patience import PATIENCE, until

TIMEOUT = 0.3
CONNECT = 0.5  # seconds that connecting may take, once in each call
LATE = 0.25  # seconds by which a call may be late beyond that

OTHERS = {
    "web server": b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    "Redis": b"-ERR unknown command\r\n",
    "mail server": b"220 mail.example.com ESMTP\r\n",
    "silent server": b"",
}
"""What other products say to whatever they are asked."""


def served(client: interlock.Client) -> bool:
    """Whether the client gets a lock again. On a busy machine its library may need longer than CONNECT to connect anew."""
    try:
        with client.lock("new", timeout=PATIENCE):
            return True
    except StoreUnavailable:
        return False


class Between:
    """Each runs on every server; `site` is a fixture of the file that names the store."""

    @pytest.mark.parametrize("mode", ["hole", "cut", "half_open", "deaf", "late"])
    def test_on_a_bad_link_a_call_ends_in_its_time_and_nothing_is_left(self, site: Site, mode: Mode) -> None:
        url = site.url()
        with Proxy(site.port) as way, interlock.connect(url) as judge, judge.lock("held"):
            with interlock.connect(site.through(url, way.port), connect_timeout=CONNECT) as client:
                with client.lock("warm", timeout=PATIENCE):
                    pass
                for name in ("new", "held"):
                    way.set(mode)
                    with at_most(TIMEOUT + CONNECT + stretched(LATE), mode), suppress(InterlockError):
                        client.lock(name).acquire(timeout=TIMEOUT)
                    way.set("pass")
                    held: list[Any] = list(client._core.leases)
                    for lease in held:
                        lease.release()
                until(lambda: served(client))
                until(lambda: not judge.inspect("held").waiters)
            until(lambda: list(judge.scan()) == ["held"])

    def test_a_reply_that_is_lost_after_the_grant_leaves_one_holder_and_nothing_behind(
        self, site: Site
    ) -> None:
        url = site.url()
        with Proxy(site.port) as proxy, interlock.connect(url) as judge:
            with interlock.connect(site.through(url, proxy.port)) as client:
                for number in range(3):
                    with client.lock("warm", timeout=PATIENCE):
                        pass
                    proxy.replies.cut(1 + number)  # the next replies end their connection
                    lease = None
                    with suppress(StoreUnavailable):
                        lease = client.lock("x").acquire(timeout=PATIENCE)
                    proxy.replies.flow()
                    if lease is not None:
                        assert [holder.token for holder in judge.inspect("x").holders] == [lease.token]
                        assert not judge.inspect("x").waiters
                        lease.release()
                    until(partial(nothing_left, judge))

    def test_a_request_that_arrives_after_its_caller_has_given_up_leaves_nothing(self, site: Site) -> None:
        url = site.url()
        with Proxy(site.port) as proxy, interlock.connect(url) as judge:
            with interlock.connect(site.through(url, proxy.port), connect_timeout=CONNECT) as client:
                with client.lock("warm", timeout=PATIENCE):
                    pass
                proxy.requests.keep()
                lease = None
                with suppress(StoreUnavailable):
                    lease = client.lock("x").acquire(timeout=TIMEOUT)
                until(lambda: proxy.requests.kept)
                if lease is not None:
                    lease.release()
                proxy.requests.deliver()
                with client.lock("y", timeout=PATIENCE):
                    pass
                until(partial(nothing_left, judge))
                with judge.lock("x", timeout=PATIENCE):
                    pass

    def test_calls_share_their_connections_and_one_that_was_cut_is_replaced_once(self, site: Site) -> None:
        url = site.url()
        with Proxy(site.port) as proxy, interlock.connect(site.through(url, proxy.port)) as client:
            with client.lock("held", ttl=30) as held:
                for _ in range(2):
                    with client.lock("x", timeout=PATIENCE):
                        held.renew()
                    connections = proxy.accepted
                    for _ in range(30):
                        with client.lock("x"):
                            pass
                    held.renew()
                    assert proxy.accepted == connections
                    proxy.hang_up()  # as a firewall does to what was idle, or an operator
                    until(lambda: self._works(client))
                held.check()

    @staticmethod
    def _works(client: interlock.Client) -> bool:
        try:
            with client.lock("x", timeout=PATIENCE):
                return True
        except StoreUnavailable:
            return False

    @pytest.mark.parametrize("product", OTHERS)
    def test_a_server_of_another_product_is_named_in_time(self, site: Site, product: str) -> None:
        with answering(OTHERS[product]) as port:
            url = site.url(port)
            said = list[str]()
            with interlock.connect(url, connect_timeout=CONNECT) as client:
                with at_most(TIMEOUT + CONNECT + stretched(LATE)), pytest.raises(InterlockError) as refusal:
                    client.lock("x").acquire(timeout=TIMEOUT)
                said.append(str(refusal.value))

            async def ask() -> None:
                async with aio.connect(url, connect_timeout=CONNECT) as client:
                    with (
                        at_most(TIMEOUT + CONNECT + stretched(LATE)),
                        pytest.raises(InterlockError) as refusal,
                    ):
                        await client.lock("x").acquire(timeout=TIMEOUT)
                    said.append(str(refusal.value))

            asyncio.run(ask())
        for text in said:
            assert f"127.0.0.1:{port}" in text
            assert "\n" not in text.strip()
            assert "Traceback" not in text

    def test_what_two_waiters_wait_for_is_given_to_both_by_one_release(self, site: Site) -> None:
        url = site.url()
        with interlock.connect(url) as holder, interlock.connect(url) as one, interlock.connect(url) as two:
            both = holder.semaphore("s", 2).acquire(permits=2)
            assert both
            got, ended = list[int](), threading.Event()

            def enter(client: interlock.Client) -> None:
                with client.semaphore("s", 2, timeout=PATIENCE) as lease:
                    got.append(lease.token)
                    ended.wait(PATIENCE)  # so that the release of one cannot let the other in

            threads = [threading.Thread(target=enter, args=(client,)) for client in (one, two)]
            for number, thread in enumerate(threads):
                thread.start()
                until(partial(_waiting, holder, number + 1))
            with at_most(3.0, "one of them was not woken"):
                both.release()
                until(lambda: len(got) == 2)
            ended.set()
            for thread in threads:
                thread.join(PATIENCE)


def _waiting(client: interlock.Client, count: int) -> bool:
    return len(client.inspect("s").waiters) == count
