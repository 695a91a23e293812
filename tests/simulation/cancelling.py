"""Cancels an operation at every single await of it, one run each, and looks at what is left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from interlock.testing.faults import Faults
from interlock.testing.simulated_cluster import ClientProcess, SimulatedCluster
from interlock.testing.world import Cancelled, SimulatedJob

TTL = 30.0  # so long that nothing tidies itself up by lapsing while we look
MOMENT = 2.0  # seconds for whatever was begun to come to its end
MOST = 200  # awaits that no operation needs


@dataclass
class Case:
    """One run: `me` is cancelled, `other` must get on."""

    cluster: SimulatedCluster
    me: ClientProcess
    other: ClientProcess
    kept: dict[str, Any] = field(default_factory=dict)  # what a set-up leaves for its operation

    def run(self, node: ClientProcess, work: Awaitable[object], name: str = "work") -> SimulatedJob:
        """Start something in a process."""

        async def run() -> None:
            await work

        return node.runtime.spawn(name, run())

    def finish(self, node: ClientProcess, work: Awaitable[object], within: float = MOMENT) -> SimulatedJob:
        """Run something to its end, which must come."""
        job = self.run(node, work)
        self.end_of(job, within)
        assert not job.alive(), f"{job!r} is stuck"
        return job

    def end_of(self, job: SimulatedJob, within: float) -> None:
        self.cluster.world.run(self.cluster.world.time + within, lambda: not job.alive())

    def settle(self) -> None:
        self.cluster.world.run(self.cluster.world.time + MOMENT)

    def left(self) -> list[str]:
        """What is still there, in the store or in either process."""
        return [" ".join(what) for what in self.cluster.left_behind()]


Operation = Callable[[Case], Awaitable[object]]
Setup = Callable[[Case], None]


def case(style: Literal["tasks", "threads"], seed: int, faults: Faults) -> Case:
    cluster = SimulatedCluster(seed, ttl=TTL, faults=faults)
    me, other = cluster.add_process(), cluster.add_process()
    me.runtime.style = other.runtime.style = style
    return Case(cluster, me, other)


def cancelled_everywhere(
    operation: Operation,
    prepare: Setup | None = None,
    *,
    style: Literal["tasks", "threads"] = "tasks",
    late: bool = False,
    faults: Faults = Faults(),  # noqa: B008  (frozen)
) -> Iterator[Case]:
    """A case for each await of the operation, cancelled at it and then left to settle."""
    for place in range(1, MOST):
        one = case(style, place, faults)
        if prepare is not None:
            prepare(one)
        job = one.run(one.me, operation(one), "victim")
        job.cancel_at, job.late = place, late
        one.end_of(job, 4 * MOMENT)
        assert not job.alive(), f"cancelled at await {place}, it hangs"
        if job.awaits < place:
            assert place > 1, "the operation never awaits: there is nothing to cancel"
            one.cluster.world.close()
            return
        assert isinstance(job.failure, Cancelled), (
            f"cancelled at await {place}, it ended with {job.failure!r}"
        )
        one.settle()
        assert not one.cluster.world.failures, one.cluster.world.failures
        yield one
        one.cluster.world.close()
    raise AssertionError(f"more than {MOST} awaits")
