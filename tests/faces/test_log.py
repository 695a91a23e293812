"""The log `interlock`: sentences with the event's data beside them, for operators and for machines."""

from __future__ import annotations

import asyncio
import logging
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from logging import LogRecord
from typing import Any

import pytest

import interlock
from interlock import aio, events
from interlock._support.log import fields
from interlock._support.wording import duration
from interlock.model import Standing
from interlock.who import Who
from tests.house.source import SRC

HOLDER = Standing(
    "id", 1793, 1, True, 200.0, 20.0, "", Who("worker-7", 211, "MainThread", "billing/run.py:88").pack()
)
BY = "worker-7 pid 211 MainThread (billing/run.py:88), token 1793"

SENTENCES: dict[events.Event, tuple[int, str]] = {
    events.Acquired("x", 17, 0.0004): (logging.DEBUG, "x: acquired, token 17"),
    events.Acquired("x", 17, 62.0): (logging.DEBUG, "x: acquired after 1 min 2 s, token 17"),
    events.Released("x", 17, 7200.0): (logging.DEBUG, "x: released after 2 h, token 17"),
    events.TimedOut("x", 5.0, 0): (logging.DEBUG, "x: not acquired in 5.0 s"),
    events.TimedOut("x", 5.0, 3): (logging.DEBUG, "x: not acquired in 5.0 s; 3 claims ahead"),
    events.Queued("x"): (logging.DEBUG, "x: waits"),
    events.AcquireFailed("x", 2.0, "StoreUnavailable", False): (
        logging.DEBUG,
        "x: not acquired after 2.0 s: StoreUnavailable",
    ),
    events.Renewed("x", 17, 0.001, 0.66, "renewed"): (
        logging.DEBUG,
        "x: a renewal of the lease with token 17 was granted",
    ),
    events.Skipped("x", HOLDER): (logging.INFO, f"x: skipped; taken 3 min 20 s ago by {BY}"),
    events.Skipped("x", None): (logging.INFO, "x: skipped; the holder is not known"),
    events.Waiting("x", 1.0, 1, HOLDER): (
        logging.INFO,
        f"x: has been waiting for 1.0 s; held 3 min 20 s by {BY}; next in the queue",
    ),
    events.Waiting("x", 1.0, 4, HOLDER): (
        logging.INFO,
        f"x: has been waiting for 1.0 s; held 3 min 20 s by {BY}; 4 claims ahead",
    ),
    events.Waiting("x", 1.0, 0, None): (logging.INFO, "x: has been waiting for 1.0 s"),
    events.WaitingForItself("x", "MainThread", 17): (
        logging.WARNING,
        "x: MainThread waits for a lock that it holds itself (token 17): release it first, or use client.rlock, which its owner may take again",
    ),
    events.Doubtful("x", 17, 6.7): (
        logging.WARNING,
        "x: the store did not answer a renewal of the lease with token 17; it is lost in 6.7 s unless the store answers",
    ),
    events.Doubtful("x", 17, 6.7, "/locks.db: the disk is full"): (
        logging.WARNING,
        "x: the lease with token 17 could not be renewed (/locks.db: the disk is full); it is lost in 6.7 s unless that is mended",
    ),
    events.OwnerEnded("x", 17, "thread worker-7", 12.0): (
        logging.WARNING,
        "x: thread worker-7 has ended and had not released the lease with token 17; it is lost in 12 s unless a living thread or task calls lease.adopt()",
    ),
    events.Lost("x", 17, "evicted", "deploy"): (
        logging.WARNING,
        "x: lease with token 17 is lost: an operator evicted it (deploy); another may hold it now",
    ),
    events.CleanupFailed("x", "no answer"): (
        logging.WARNING,
        "x: a claim could not be taken back and lapses by itself (no answer)",
    ),
    events.KeeperLagged(4.0): (
        logging.WARNING,
        "renewals began 4.0 s late: the machine is overloaded, or the process was paused",
    ),
    events.KeeperFailed("KeyError()"): (
        logging.ERROR,
        "the keeper, which renews leases, met an error that it did not expect, and goes on: KeyError()",
    ),
    events.LoopStalled(12.0): (
        logging.WARNING,
        "the event loop has not run for 12 s: something blocks it; its leases are renewed meanwhile",
    ),
    events.CallbackFailed("ValueError()", "x"): (
        logging.ERROR,
        "x: the callback on_lost failed: ValueError()",
    ),
}


@pytest.fixture
def records() -> Iterator[list[LogRecord]]:
    """What is written to the log, from DEBUG upwards."""
    written: list[LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: LogRecord) -> None:
            written.append(record)

    logger, handler = logging.getLogger("interlock"), Keep()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    yield written
    logger.removeHandler(handler)
    logger.setLevel(level)
    logger.propagate = propagate


def until(fact: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not fact():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def told(records: list[LogRecord]) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in records]


def test_every_event_has_a_sentence() -> None:
    kinds = {
        kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.Event)
    }
    assert {type(event) for event in SENTENCES} == kinds - {events.Event}


@pytest.mark.parametrize("event", SENTENCES, ids=repr)
def test_an_event_says_what_happened(event: events.Event) -> None:
    level, sentence = SENTENCES[event]
    assert (event.level, str(event)) == (level, sentence)
    assert event.warning == (level >= logging.WARNING)


def test_taking_and_giving_back_are_told_at_debug_with_their_data(records: list[LogRecord]) -> None:
    with interlock.connect("memory://log") as client, client.lock("orders/42") as lease:
        pass
    acquired, released = records
    held = duration(released.interlock_held)  # type: ignore[attr-defined]
    assert told(records) == [
        ("DEBUG", f"orders/42: acquired, token {lease.token}"),
        ("DEBUG", f"orders/42: released after {held}, token {lease.token}"),
    ]
    assert acquired.interlock_event == "Acquired"  # type: ignore[attr-defined]
    assert acquired.interlock_resource == "orders/42"  # type: ignore[attr-defined]
    assert released.interlock_token == lease.token  # type: ignore[attr-defined]


def test_the_async_face_writes_the_same(records: list[LogRecord]) -> None:
    async def main() -> int:
        async with aio.connect("memory://log-async") as client, client.lock("x") as lease:
            return lease.token

    token = asyncio.run(main())
    assert told(records)[0] == ("DEBUG", f"x: acquired, token {token}")


def test_nothing_is_told_of_ordinary_locks_unless_asked_for(records: list[LogRecord]) -> None:
    logging.getLogger("interlock").setLevel(logging.INFO)
    with interlock.connect("memory://log-quiet") as client, client.lock("x"):
        assert not client._core.wants_all_events()
    assert not records


def test_a_listener_hears_of_ordinary_locks_however_little_the_log_accepts(records: list[LogRecord]) -> None:
    logging.getLogger("interlock").setLevel(logging.ERROR)
    heard: list[events.Event] = []
    with interlock.connect("memory://log-heard", listener=heard.append) as client, client.lock("x"):
        pass
    assert [type(event).__name__ for event in heard] == ["Acquired", "Released"]
    assert not records


def test_a_log_that_accepts_more_from_now_on_is_told_of_the_next_lock(records: list[LogRecord]) -> None:
    logging.getLogger("interlock").setLevel(logging.INFO)
    with interlock.connect("memory://log-later") as client:
        with client.lock("x"):
            pass
        logging.getLogger("interlock").setLevel(logging.DEBUG)
        with client.lock("x"):
            pass
    assert [record.levelname for record in records] == ["DEBUG", "DEBUG"]


def test_a_listener_hears_beside_the_log_and_not_in_its_place(records: list[LogRecord]) -> None:
    heard: list[events.Event] = []
    with interlock.connect("memory://log-beside", listener=heard.append) as client:
        lease = client.lock("x").acquire()
        assert lease
        client.evict("x", reason="deploy")
        with pytest.raises(interlock.LeaseLost):
            lease.renew()
    assert "Lost" in [type(event).__name__ for event in heard]
    assert (
        "WARNING",
        f"x: lease with token {lease.token} is lost: an operator evicted it (deploy); another may hold it now",
    ) in told(records)


def test_a_listener_hears_also_when_a_filter_of_the_log_fails(records: list[LogRecord]) -> None:
    def fail(record: LogRecord) -> bool:
        raise ZeroDivisionError

    heard: list[events.Event] = []
    logger = logging.getLogger("interlock")
    logger.addFilter(fail)
    try:
        with interlock.connect("memory://log-filter", listener=heard.append) as client, client.lock("x"):
            pass
    finally:
        logger.removeFilter(fail)
    assert [type(event).__name__ for event in heard] == ["Acquired", "Released"]


def fail(lease: Any) -> None:
    raise ValueError("a bug in a callback")


async def fail_later(lease: Any) -> None:
    fail(lease)


@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_callback_that_fails_is_told_with_its_traceback(face: str, records: list[LogRecord]) -> None:
    def failed() -> list[LogRecord]:
        return [record for record in records if record.levelname == "ERROR"]

    async def main() -> None:
        async with aio.connect("memory://log-callback-async") as client:
            await client.lock("x", ttl=0.05, renew=False, on_lost=fail_later).acquire()
            await asyncio.to_thread(until, failed)

    if face == "async":
        asyncio.run(main())
    else:
        with interlock.connect("memory://log-callback") as client:
            client.lock("x", ttl=0.05, renew=False, on_lost=fail).acquire()
            until(failed)
    (record,) = failed()
    text = logging.Formatter().format(record)
    assert text.startswith("x: the callback on_lost failed: ValueError('a bug in a callback')\nTraceback")
    assert "in fail\n" in text, text
    assert record.interlock_resource == "x"  # type: ignore[attr-defined]


def test_a_record_can_be_sent_to_another_process(records: list[LogRecord]) -> None:
    for event in SENTENCES:
        data = fields(event)
        assert pickle.loads(pickle.dumps(data)) == data
        assert all(isinstance(value, (str, int, float, type(None))) for value in data.values()), data
        assert all(name.startswith("interlock_") for name in data)
        assert not set(data) & set(vars(logging.makeLogRecord({})))


def test_words_of_other_programs_do_not_forge_lines_of_the_log(records: list[LogRecord]) -> None:
    with interlock.connect("memory://log-forged") as client:
        lease = client.lock("x").acquire()
        assert lease
        client.evict("x", reason="deploy\nERROR all is lost")
        with pytest.raises(interlock.LeaseLost):
            lease.renew()
    assert not [record for record in records if "\n" in record.getMessage()]


def test_a_program_that_never_imported_logging_is_warned_all_the_same() -> None:
    program = """
import sys
import interlock
client = interlock.connect("memory://")
with client.lock("x"):
    pass
assert "logging" not in sys.modules, "10 ms that nobody asked for"
lease = client.lock("x").acquire()
client.evict("x", reason="deploy")
try:
    lease.renew()
except interlock.LeaseLost:
    pass
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr.startswith("x: lease with token ")
    assert done.stderr.endswith("is lost: an operator evicted it (deploy); another may hold it now\n"), (
        done.stderr
    )


def test_debugging_can_be_switched_on_later(records: list[LogRecord]) -> None:
    logger = logging.getLogger("interlock")
    logger.setLevel(logging.WARNING)
    with interlock.connect("memory://log-later") as client:
        with client.lock("x"):
            pass
        assert not records
        logger.setLevel(logging.DEBUG)
        with client.lock("x"):
            pass
    assert len(records) == 2


def test_threads_write_under_their_own_names(records: list[LogRecord]) -> None:
    with interlock.connect("memory://log-threads") as client:

        def hold() -> None:
            with client.lock("x"):
                pass

        thread = threading.Thread(target=hold, name="worker-7")
        thread.start()
        thread.join()
    assert {record.threadName for record in records} == {"worker-7"}
