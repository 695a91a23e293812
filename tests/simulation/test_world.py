"""The simulated world: what can happen to its processes happens as it does to real ones."""

from __future__ import annotations

import pytest

from interlock.testing.simulated_runtime import SimulatedRuntime
from interlock.testing.world import Cancelled, Killed, Livelock, World


def test_time_passes_only_when_nobody_can_run() -> None:
    world = World(1)
    process = SimulatedRuntime(world, "p")
    woke: list[float] = []

    async def sleep(seconds: float) -> None:
        await process.sleep(seconds)
        woke.append(round(world.time, 3))

    for seconds in (3600.0, 1.0, 60.0):
        process.spawn("sleeper", sleep(seconds))
    world.run(1e6)
    assert woke == [1.0, 60.0, 3600.0]


def test_jobs_overtake_each_other_at_awaits_as_the_seed_decides() -> None:
    def order(seed: int) -> list[int]:
        world = World(seed)
        process = SimulatedRuntime(world, "p")
        seen: list[int] = []

        async def run(number: int) -> None:
            for _ in range(5):
                await process.sleep(0.0)
                seen.append(number)

        for number in range(3):
            process.spawn("job", run(number))
        world.run(1.0)
        return seen

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(10)}) > 5


def test_a_paused_process_does_nothing_and_its_timers_fire_late() -> None:
    world = World(1)
    process = SimulatedRuntime(world, "p")
    woke: list[float] = []

    async def sleep() -> None:
        await process.sleep(1.0)
        woke.append(process.now())

    process.spawn("sleeper", sleep())
    world.run(0.5)
    process.pause()
    world.run(10.0)
    assert woke == []
    process.resume()
    world.run(20.0)
    assert woke == [pytest.approx(10.0, abs=0.001)]


def test_a_killed_process_does_not_even_clean_up() -> None:
    world = World(1)
    process, network = SimulatedRuntime(world, "p"), SimulatedRuntime(world, "network")
    done: list[str] = []

    async def work() -> None:
        try:
            await process.sleep(1.0)
        finally:
            await process.sleep(0.0)
            done.append("cleaned up")

    async def outlive() -> None:
        await network.sleep(2.0)
        done.append("others go on")

    process.spawn("work", work())
    network.spawn("others", outlive())
    world.run(0.5)
    process.kill()
    world.run(5.0)
    assert done == ["others go on"]
    assert not process.jobs


def test_a_process_can_kill_itself() -> None:
    world = World(1)
    process = SimulatedRuntime(world, "p")
    done: list[str] = []

    async def work() -> None:
        process.kill()
        with pytest.raises(Killed):
            await process.sleep(0.0)
        done.append("killed")
        await process.sleep(0.0)
        done.append("lives")

    process.spawn("work", work())
    world.run(1.0)
    assert done == ["killed"]


def test_clocks_of_two_processes_differ_and_drift() -> None:
    world = World(1)
    fast, slow = (
        SimulatedRuntime(world, "f", drift=0.01, epoch=1000.0),
        SimulatedRuntime(world, "s", drift=-0.01),
    )
    world.run(100.0)
    assert fast.now() == pytest.approx(1101.0)
    assert slow.now() == pytest.approx(99.0)
    assert fast.true_time(fast.now()) == pytest.approx(100.0)


@pytest.mark.parametrize("style", ["tasks", "threads"])
def test_finish_runs_a_clean_up_to_its_end_though_it_is_cancelled(style: str) -> None:
    for place in range(1, 8):
        world = World(place)
        process = SimulatedRuntime(world, "p", style="tasks" if style == "tasks" else "threads")
        ended: list[str] = []

        async def clean(process: SimulatedRuntime = process, ended: list[str] = ended) -> None:
            for _ in range(3):
                await process.sleep(0.1)
            ended.append("clean")

        async def work(process: SimulatedRuntime = process) -> None:
            await process.finish(clean)

        job = process.spawn("work", work())
        job.cancel_at = place
        world.run(5.0)
        assert "clean" in ended
        assert job.failure is None or isinstance(job.failure, Cancelled)


def test_a_cancelled_job_meets_it_at_the_await_that_was_named() -> None:
    world = World(1)
    process = SimulatedRuntime(world, "p")
    passed: list[int] = []

    async def work() -> None:
        for number in range(1, 6):
            await process.sleep(1.0)
            passed.append(number)

    job = process.spawn("work", work())
    job.cancel_at = 3
    world.run(10.0)
    assert passed == [1, 2]
    assert isinstance(job.failure, Cancelled)


def test_a_guard_held_across_an_await_or_entered_twice_is_found_out() -> None:
    world = World(1)
    process = SimulatedRuntime(world, "p")
    guard = process.mutex()

    async def wait() -> None:
        with guard:
            await process.sleep(1.0)

    async def enter_twice() -> None:
        with guard, guard:
            pass

    process.spawn("waits", wait())
    process.spawn("enters", enter_twice())
    world.run(1.0)
    assert len(world.failures) == 2


def test_jobs_that_keep_each_other_busy_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.testing.world.MAX_STEPS", 1000)
    world = World(1)
    process = SimulatedRuntime(world, "p")

    async def spin() -> None:
        while True:
            await process.sleep(0.0)

    process.spawn("spins", spin())
    with pytest.raises(Livelock):
        world.run(1.0)
    world.close()
