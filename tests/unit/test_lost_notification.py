"""A notification whose reply is lost tells its caller that waiters may have been woken; one that was not sent does not."""

from __future__ import annotations

import threading
from typing import Any
from uuid import uuid4

import pytest

import interlock
from interlock._core.drive import drive
from interlock.errors import StoreUnavailable, Unreached
from interlock.store import WAITERS
from tests.patience import PATIENCE, until


@pytest.mark.parametrize("wakes_first", [0, 1])
@pytest.mark.parametrize("kind", [StoreUnavailable, Unreached])
def test_a_notification_that_may_have_woken_somebody_says_so(
    monkeypatch: Any, kind: type[StoreUnavailable], wakes_first: int
) -> None:
    client, name = interlock.connect(f"memory://{uuid4().hex}"), "ready"
    woken: list[bool] = []

    def wait() -> None:
        condition = client.condition(name)
        with condition:
            woken.append(condition.wait(PATIENCE))

    waiters = [threading.Thread(target=wait) for _ in range(3)]
    for waiter in waiters:
        waiter.start()
    condition = client.condition(name)
    store: Any = client._core.store
    until(lambda: len(drive(store.inspect(name + WAITERS)).standings) == 3)
    release, left = store.release, [wakes_first]

    async def losing(resource: str, *args: Any) -> bool:
        if not resource.endswith(WAITERS):
            return bool(await release(resource, *args))
        if left[0] == 0:
            raise kind("no answer")
        left[0] -= 1
        return bool(await release(resource, *args))

    with condition:
        with monkeypatch.context() as patched:
            patched.setattr(store, "release", losing)
            with pytest.raises(StoreUnavailable) as failure:
                condition.notify(2)
        condition.notify_all()
    assert ("may have been notified" in str(failure.value)) == (bool(wakes_first) or kind is not Unreached)
    assert isinstance(failure.value, Unreached) == ("may have been" not in str(failure.value))
    for waiter in waiters:
        waiter.join(PATIENCE)
    assert woken == [True] * 3
    client.close()
