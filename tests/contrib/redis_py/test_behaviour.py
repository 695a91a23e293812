"""redis-py's own behaviour is the specification: each sentence holds for its locks and for ours, of both colours."""

from __future__ import annotations

import time

import pytest
from redis.asyncio.lock import Lock as TheirAsyncLock
from redis.exceptions import LockError, LockNotOwnedError
from redis.lock import Lock as TheirLock

from interlock.testing.lag import at_most, stretched
from interlock.testing.servers.redis import Server
from tests.contrib.redis_py.party import Kind, Party, attempts, beside, until
from tests.patience import PATIENCE


def test_it_is_a_lock_of_redis_py(party: Party, name: str) -> None:
    lock = party.kind.lock_class(party.client, name, 10, 0.5, False, 3, False, raise_on_release_error=False)
    assert isinstance(lock, TheirAsyncLock if party.kind.asynchronous else TheirLock)
    assert (lock.name, lock.timeout, lock.sleep) == (name, 10, 0.5)
    assert (lock.blocking, lock.blocking_timeout) == (False, 3)
    assert (lock.thread_local, lock.raise_on_release_error, lock.local.token) == (False, False, None)


class TestTaking:
    def test_a_taken_lock_has_a_token_and_its_key_stands(self, party: Party, name: str) -> None:
        lock = party.lock(name)
        assert lock.acquire(blocking=False) is True
        token = lock.local.token
        assert isinstance(token, bytes)
        assert party.ask("GET", name).startswith(token)
        assert lock.release() is None
        assert getattr(lock.local, "token", "none at all") is None
        assert party.ask("GET", name) is None

    @pytest.mark.parametrize("token", ["mine", b"mine", b"\xff\xfe"], ids=["str", "bytes", "binary"])
    def test_a_token_may_be_chosen(self, party: Party, name: str, token: str | bytes) -> None:
        if party.kind.decoded and token == b"\xff\xfe" and not party.kind.ours:
            pytest.skip("redis-py cannot decode it")
        lock = party.lock(name)
        assert lock.acquire(token=token)
        assert lock.local.token == (token.encode() if isinstance(token, str) else token)
        assert lock.owned()
        lock.release()
        assert party.ask("GET", name) is None

    def test_a_name_may_be_bytes(self, party: Party, name: str) -> None:
        with party.lock(name.encode()):
            assert party.lock(name).locked()
            assert not party.lock(name).acquire(blocking=False)

    def test_a_second_lock_is_refused_until_the_first_is_released(
        self, party: Party, other: Party, name: str
    ) -> None:
        first, second = party.lock(name), other.lock(name)
        assert first.acquire(blocking=False) is True
        assert second.acquire(blocking=False) is False
        assert second.local.token is None
        first.release()
        assert second.acquire(blocking=False) is True
        assert first.acquire(blocking=False) is False
        second.release()

    def test_a_lock_may_not_be_taken_twice(self, party: Party, name: str) -> None:
        lock = party.lock(name)
        assert lock.acquire()
        token = lock.local.token
        assert lock.acquire(blocking=False) is False
        assert lock.local.token == token
        lock.release()

    def test_the_same_chosen_token_does_not_let_two_in(self, party: Party, other: Party, name: str) -> None:
        first, second = party.lock(name), other.lock(name)
        assert first.acquire(token="same")
        assert second.acquire(token="same", blocking=False) is False
        assert first.owned()
        first.release()
        assert second.acquire(token="same", blocking=False) is True
        second.release()

    def test_blocking_may_be_said_when_it_is_made(self, party: Party, other: Party, name: str) -> None:
        with party.lock(name):
            assert other.lock(name, blocking=False).acquire() is False
            assert (
                other.lock(name, blocking=False, sleep=0.01).acquire(blocking=True, blocking_timeout=0.05)
                is False
            )

    @pytest.mark.parametrize("late", [False, True], ids=["made so", "asked so"])
    def test_it_gives_up_after_the_blocking_timeout(
        self, party: Party, other: Party, name: str, late: bool
    ) -> None:
        with party.lock(name):
            began = time.monotonic()
            with at_most(1):
                if late:
                    assert other.lock(name, sleep=0.02).acquire(blocking_timeout=0.2) is False
                else:
                    assert other.lock(name, sleep=0.02, blocking_timeout=0.2).acquire() is False
            assert time.monotonic() - began > 0.15

    @pytest.mark.parametrize("wait", [0, -1])
    def test_no_time_to_wait_is_one_try(self, party: Party, other: Party, name: str, wait: float) -> None:
        lock = party.lock(name)
        assert lock.acquire(blocking_timeout=wait) is True
        assert other.lock(name).acquire(blocking_timeout=wait) is False
        lock.release()

    def test_who_waits_gets_in_when_the_holder_leaves(self, party: Party, other: Party, name: str) -> None:
        lock, waiting = party.lock(name), other.lock(name, sleep=0.01, thread_local=False)
        assert lock.acquire()
        before = attempts(party)
        with beside(lambda: waiting.acquire(blocking_timeout=PATIENCE)) as got:
            until(lambda: attempts(party) > before)
            assert not got
            lock.release()
        assert got == [True]
        assert waiting.owned()
        assert not lock.owned()
        waiting.release()


class TestLooking:
    def test_locked_by_anyone_owned_by_one(self, party: Party, other: Party, name: str) -> None:
        lock, stranger = party.lock(name), other.lock(name)
        assert (lock.locked(), lock.owned()) == (False, False)
        lock.acquire()
        assert (lock.locked(), lock.owned()) == (True, True)
        assert (stranger.locked(), stranger.owned()) == (True, False)
        lock.release()
        assert (lock.locked(), lock.owned()) == (False, False)

    def test_what_another_wrote_over_is_locked_and_not_owned(self, party: Party, name: str) -> None:
        lock = party.lock(name, timeout=10)
        lock.acquire()
        party.ask("SET", name, "another's")
        assert (lock.locked(), lock.owned()) == (True, False)
        party.ask("DEL", name)
        assert (lock.locked(), lock.owned()) == (False, False)


class TestTimeout:
    @pytest.mark.parametrize("timeout", [10, 9.5])
    def test_it_ends_after_its_timeout(self, party: Party, name: str, timeout: float) -> None:
        with party.lock(name, timeout=timeout):
            assert timeout - 2 < party.ask("PTTL", name) / 1000 <= timeout

    def test_when_it_has_ended_another_gets_in(self, party: Party, other: Party, name: str) -> None:
        lock = party.lock(name, timeout=stretched(0.2))
        assert lock.acquire()
        successor = other.lock(name, sleep=0.01)
        assert successor.acquire(blocking_timeout=PATIENCE)
        assert not lock.owned()
        with pytest.raises(LockNotOwnedError):
            lock.release()
        assert successor.owned()
        successor.release()

    def test_the_first_lock_cannot_be_extended_once_it_has_ended(self, party: Party, name: str) -> None:
        lock = party.lock(name, timeout=stretched(0.2))
        assert lock.acquire()
        until(lambda: not lock.locked())
        with pytest.raises(LockNotOwnedError):
            lock.extend(10)
        with pytest.raises(LockNotOwnedError):
            lock.reacquire()
        assert not lock.locked()


class TestReleasing:
    def test_what_was_not_taken_cannot_be_released(self, party: Party, name: str) -> None:
        with pytest.raises(LockError) as error:
            party.lock(name).release()
        assert not isinstance(error.value, LockNotOwnedError)

    def test_it_is_released_once(self, party: Party, name: str) -> None:
        lock = party.lock(name)
        lock.acquire()
        lock.release()
        with pytest.raises(LockError):
            lock.release()

    def test_another_s_lock_is_not_touched(self, party: Party, name: str) -> None:
        lock = party.lock(name)
        lock.acquire()
        party.ask("SET", name, "another's")
        with pytest.raises(LockNotOwnedError, match="Cannot release a lock that's no longer owned"):
            lock.release()
        assert lock.local.token is None
        assert party.ask("GET", name) == b"another's"


class TestContext:
    def test_its_body_runs_under_the_lock(self, party: Party, name: str) -> None:
        with party.lock(name) as lock:
            assert party.run(lock.owned())
            assert party.ask("GET", name).startswith(lock.local.token)
        assert party.ask("GET", name) is None

    def test_its_body_s_own_error_comes_out_and_the_lock_is_released(self, party: Party, name: str) -> None:
        with pytest.raises(ZeroDivisionError):
            with party.lock(name):
                raise ZeroDivisionError
        assert party.ask("GET", name) is None

    def test_its_body_does_not_run_without_the_lock(self, party: Party, other: Party, name: str) -> None:
        with party.lock(name):
            with pytest.raises(LockError, match="Unable to acquire lock within the time specified"):
                with other.lock(name, blocking_timeout=0.1):
                    pytest.fail("entered")
            with pytest.raises(LockError):
                with other.lock(name, blocking=False):
                    pytest.fail("entered")

    def test_a_loss_is_raised_at_its_end(self, party: Party, name: str) -> None:
        with pytest.raises(LockNotOwnedError):
            with party.lock(name):
                party.ask("DEL", name)

    def test_a_loss_is_not_raised_if_so_wished(self, party: Party, name: str) -> None:
        with party.lock(name, raise_on_release_error=False):
            party.ask("DEL", name)
        with party.lock(name, raise_on_release_error=False) as lock:
            party.run(lock.release())


class TestExtending:
    def test_time_is_added_to_what_is_left(self, party: Party, name: str) -> None:
        with party.lock(name, timeout=10) as lock:
            assert party.run(lock.extend(10)) is True
            assert 18_000 < party.ask("PTTL", name) <= 20_000
            assert party.run(lock.extend(0.5))
            assert 18_500 < party.ask("PTTL", name) <= 20_500

    @pytest.mark.parametrize("seconds", [20, 3.5], ids=["longer", "shorter"])
    def test_what_is_left_is_replaced(self, party: Party, name: str, seconds: float) -> None:
        with party.lock(name, timeout=10) as lock:
            assert party.run(lock.extend(seconds, replace_ttl=True)) is True
            assert (seconds - 2) * 1000 < party.ask("PTTL", name) <= seconds * 1000

    def test_a_lock_that_was_shortened_ends_sooner(self, party: Party, name: str) -> None:
        lock = party.lock(name, timeout=30)
        lock.acquire()
        lock.extend(0.05, replace_ttl=True)
        until(lambda: not lock.owned())
        with pytest.raises(LockNotOwnedError):
            lock.release()

    def test_a_lock_that_was_extended_outlives_its_timeout(self, party: Party, name: str) -> None:
        timeout = stretched(0.3)
        lock = party.lock(name, timeout=timeout)
        lock.acquire()
        lock.extend(30)
        party.run(party.client.blpop([f"{name}-never"], 1.5 * timeout))  # by the server's own clock
        assert lock.owned()
        lock.release()

    def test_what_was_not_taken_cannot_be_extended(self, party: Party, name: str) -> None:
        with pytest.raises(LockError, match="Cannot extend an unlocked lock"):
            party.lock(name, timeout=10).extend(10)

    def test_what_has_no_timeout_cannot_be_extended(self, party: Party, name: str) -> None:
        with party.lock(name) as lock:
            with pytest.raises(LockError, match="Cannot extend a lock with no timeout"):
                party.run(lock.extend(10))

    def test_what_is_another_s_cannot_be_extended(self, party: Party, name: str) -> None:
        lock = party.lock(name, timeout=10)
        lock.acquire()
        party.ask("SET", name, "another's")
        with pytest.raises(LockNotOwnedError, match="Cannot extend a lock that's no longer owned"):
            lock.extend(10)
        assert party.ask("PTTL", name) == -1


class TestReacquiring:
    def test_it_has_its_whole_timeout_again(self, party: Party, name: str) -> None:
        with party.lock(name, timeout=10) as lock:
            party.ask("PEXPIRE", name, 5000)
            assert party.run(lock.reacquire()) is True
            assert 8000 < party.ask("PTTL", name) <= 10_000

    def test_it_has_no_more_than_its_timeout_again(self, party: Party, name: str) -> None:
        with party.lock(name, timeout=10) as lock:
            party.run(lock.extend(50))
            party.run(lock.reacquire())
            assert 8000 < party.ask("PTTL", name) <= 10_000

    def test_what_was_not_taken_cannot_be_reacquired(self, party: Party, name: str) -> None:
        with pytest.raises(LockError, match="Cannot reacquire an unlocked lock"):
            party.lock(name, timeout=10).reacquire()

    def test_what_has_no_timeout_cannot_be_reacquired(self, party: Party, name: str) -> None:
        with party.lock(name) as lock:
            with pytest.raises(LockError, match="Cannot reacquire a lock with no timeout"):
                party.run(lock.reacquire())

    def test_what_is_another_s_cannot_be_reacquired(self, party: Party, name: str) -> None:
        lock = party.lock(name, timeout=10)
        lock.acquire()
        party.ask("SET", name, "another's")
        with pytest.raises(LockNotOwnedError, match="Cannot reacquire a lock that's no longer owned"):
            lock.reacquire()


class TestPassingOn:
    """A token is all another object, or another program, needs to go on with the lock."""

    @pytest.mark.parametrize("chosen", [None, "chosen"], ids=["drawn", "chosen"])
    def test_who_has_the_token_owns_extends_and_releases(
        self, party: Party, other: Party, name: str, chosen: str | None
    ) -> None:
        taken, passed = party.lock(name, timeout=10), other.lock(name, timeout=10)
        assert taken.acquire(token=chosen)
        passed.lock.local.token = taken.local.token
        assert passed.owned()
        assert passed.extend(10)
        assert party.ask("PTTL", name) > 18_000
        assert passed.reacquire()
        assert party.ask("PTTL", name) <= 10_000
        passed.release()
        assert passed.local.token is None
        assert not taken.locked()
        with pytest.raises(LockNotOwnedError):
            taken.release()

    def test_a_token_of_redis_py_s_own_lock_is_as_good(self, party: Party, server: Server, name: str) -> None:
        with Party(server.port, Kind(ours=False, asynchronous=party.kind.asynchronous)) as theirs:
            taken, passed = theirs.lock(name, timeout=10), party.lock(name, timeout=10)
            assert taken.acquire()
            passed.lock.local.token = taken.local.token
            assert passed.owned()
            assert passed.extend(10)
            assert party.ask("PTTL", name) > 18_000
            assert passed.reacquire()
            passed.release()
            assert not taken.owned()

    def test_a_wrong_token_is_nobody_s(self, party: Party, other: Party, name: str) -> None:
        passed = other.lock(name, timeout=10)
        with party.lock(name):
            for call in (passed.release, passed.reacquire, lambda: passed.extend(1)):
                passed.lock.local.token = b"wrong"
                assert not passed.owned()
                with pytest.raises(LockNotOwnedError):
                    call()

    def test_a_thread_sees_only_its_own_token(self, party: Party, name: str) -> None:
        lock = party.lock(name)
        lock.acquire()
        with beside(lambda: lock.lock.local.token) as seen:
            pass
        assert seen != [lock.local.token]  # redis-py has no such attribute there
        lock.release()

    def test_threads_may_share_a_token(self, party: Party, name: str) -> None:
        lock = party.lock(name, thread_local=False)
        with beside(lock.acquire) as taken:
            pass
        assert taken == [True]
        assert lock.owned()
        lock.release()
        assert not lock.locked()
