"""Attacks by the time limits of task queues: a signal handler raises an ordinary exception, at any step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial

import pytest

import interlock
from interlock._core.runtime import Job
from interlock._core.states import State
from tests.attacks.stage import eventually
from tests.attacks.strike import Strike

FOLDER = os.path.dirname(interlock.__file__)


class TimeLimit(Exception):
    """As Celery's SoftTimeLimitExceeded, or RQ's JobTimeoutException."""


def exceed() -> None:
    raise TimeLimit


def free(client: interlock.Client, name: str) -> bool:
    return not client.inspect(name).holders


def ended(job: Job | None) -> bool:
    return job is None or not job.alive()


def strikes(operation: Callable[[int], object], handler: Callable[[], object] | None) -> Iterator[Strike]:
    """Run the operation again and again, interrupted one step later each time."""
    number = 0
    while True:
        number += 1
        strike = Strike(number, FOLDER, handler)
        interrupted = False

        def run(number: int = number) -> None:
            nonlocal interrupted
            try:
                operation(number)
            except TimeLimit:
                interrupted = True

        if not strike.run(run) and not interrupted and not strike.where:
            return
        yield strike


@pytest.mark.filterwarnings("ignore:coroutine")
def test_a_time_limit_at_any_step_of_a_release_leaves_no_claim_behind(tmp_path: os.PathLike[str]) -> None:
    url = f"memory://{tmp_path}"
    with interlock.connect(url) as client, interlock.connect(url) as other:
        leases: dict[int, interlock.Lease] = {}
        made = iter(range(1, 1_000))

        def take() -> None:
            number = next(made)
            lease = client.lock(f"x{number}").acquire()
            assert lease is not None
            leases[number] = lease

        take()
        for strike in strikes(lambda number: leases[number].release(), exceed):
            lease = leases[strike.number]
            if lease.state is State.HELD:
                lease.release()  # it had not begun
            eventually(partial(free, other, lease.resource))
            take()


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("handler", [exceed, None], ids=["time limit", "Ctrl-C"])
def test_a_close_that_is_interrupted_at_any_step_leaves_nothing_that_is_renewed(
    handler: Callable[[], object] | None, tmp_path: os.PathLike[str]
) -> None:
    url = f"memory://{tmp_path}"
    with interlock.connect(url) as other:
        clients: dict[int, interlock.Client] = {}

        def open_client(number: int) -> None:
            clients[number] = interlock.connect(url)
            clients[number].lock(f"x{number}").acquire()

        open_client(1)
        for strike in strikes(lambda number: clients[number].close(), handler):
            client = clients.pop(strike.number)
            client.close()  # if it had not begun
            assert not other.inspect(f"x{strike.number}").holders, strike.where
            keeper = client._core.keeper._job
            eventually(partial(ended, keeper))
            open_client(strike.number + 1)
        clients.popitem()[1].close()
