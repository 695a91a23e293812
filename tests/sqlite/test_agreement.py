"""Whatever is asked of it, the lock file answers as the reference in memory does."""

from __future__ import annotations

import threading
from collections.abc import Coroutine
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.memory import MemoryStore, Space
from interlock.backends.sqlite import open_store
from interlock.errors import SettingsMismatch
from interlock.model import Claim, Queue, Renewal, Standing
from interlock.ports import Store
from tests.sqlite.stage import Hands

# An id is one wish: what it asks for never changes, as `Claim.id` promises.
WISHES = {
    **{f"mutex-{n}": ("mutex", 1, 1) for n in range(4)},
    **{f"other-{n}": ("mutex", 1, 2) for n in range(1)},
    **{f"sem-{n}": ("semaphore", 1 + n % 3, 3) for n in range(6)},
    **{f"read-{n}": ("rw", 1, 10) for n in range(3)},
    **{f"write-{n}": ("rw", 10, 10) for n in range(3)},
}
ids = st.sampled_from(sorted(WISHES))
seconds = st.sampled_from([0.5, 1.0, 2.0, 4.0])

steps = st.one_of(
    st.tuples(st.just("claim"), ids, seconds, seconds, st.booleans()),
    st.tuples(st.just("claim"), ids, seconds, seconds, st.booleans()),
    st.tuples(st.just("release"), ids, st.sampled_from([0.0, 0.0, 1.0])),
    st.tuples(
        st.just("renew"), st.lists(st.tuples(ids, seconds, st.sampled_from([None, None, 1])), max_size=8)
    ),
    st.tuples(st.just("evict"), ids, st.booleans()),
    st.tuples(st.just("look"), st.sampled_from(["mutex", "semaphore", "rw", "nobody"])),
    st.tuples(
        st.just("scan"), st.sampled_from(["", "m", "mutex", "s", "x"]), st.sampled_from(["", "mutex", "rw"])
    ),
    st.tuples(st.just("pass"), st.sampled_from([0.1, 0.5, 1.0, 3.0])),
    st.tuples(st.just("wall"), st.sampled_from([-5_000_000, 7, 5_000_000])),
    st.tuples(st.just("write"), st.sampled_from(["x", "y"]), st.booleans(), st.sampled_from(["v", None])),
)


def asked(store: Store, step: Any, versions: dict[str, int]) -> Coroutine[Any, Any, Any]:
    match step:
        case ("claim", id, ttl, place_ttl, queued):
            resource, permits, capacity = WISHES[id]
            return store.claim(Claim(resource, id, ttl, permits, capacity, queued, place_ttl, "note", "who"))
        case ("release", id, linger):
            return store.release(WISHES[id][0], id, linger)
        case ("renew", renewals):
            return store.renew(
                [Renewal(WISHES[id][0], id, ttl, None, permits) for id, ttl, permits in renewals], 1.0
            )
        case ("evict", id, everyone):
            return store.evict(WISHES[id][0], None if everyone else id, "to see")
        case ("look", resource):
            return store.inspect(resource)
        case ("scan", prefix, after):
            return store.scan(prefix, after, 2)
        case ("write", name, right, value):
            return store.compare_and_set(
                name, versions.get(name, 0) if right else 1, value, f"{len(versions)}"
            )
        case _:
            raise AssertionError(step)


def plain(answer: Any) -> Any:
    """An answer without ages, which differ where a lapse was noticed at different times."""
    if isinstance(answer, Standing):
        return (
            answer.id,
            answer.token,
            answer.permits,
            answer.admitted,
            round(answer.lapses_in, 6),
            answer.note,
        )
    if isinstance(answer, Queue):
        return (answer.resource, answer.capacity, [plain(standing) for standing in answer.standings])
    if isinstance(answer, list):
        return [plain(each) for each in answer]
    if hasattr(answer, "retry_after"):
        return (answer.ahead, round(answer.retry_after, 6))
    return answer


def answered(store: Store, step: Any, versions: dict[str, int]) -> Any:
    try:
        return plain(drive(asked(store, step, versions)))
    except SettingsMismatch as mismatch:
        return mismatch.args


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=40))
def test_the_lock_file_answers_as_the_reference_does(script: list[Any]) -> None:
    hands = Hands()
    reference = MemoryStore(Space(lambda: hands.now, threading.Lock(), lambda: hands.micros), Threads())
    with TemporaryDirectory() as folder:
        # Two stores take turns: what one remembers for itself must not matter.
        files = [
            open_store(f"{folder}/locks.db", Threads(), asynchronous=False, clock=hands.clock)
            for _ in range(2)
        ]
        versions: dict[str, int] = {}
        elapsed = 0.0
        for turn, step in enumerate(script):
            if step[0] == "pass":
                if elapsed + step[1] < 50.0:  # the reference forgets evictions at other times than we do
                    elapsed += step[1]
                    hands.now += step[1]
            elif step[0] == "wall":
                hands.micros += step[1]
            else:
                expected = answered(reference, step, versions)
                assert answered(files[turn % 2], step, versions) == expected, step
                if step[0] == "write" and expected is not None:
                    versions[step[1]] = expected.version
        for file in files:
            drive(file.close())
