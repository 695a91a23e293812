"""Barriers on a register, with the behaviour of `threading.Barrier`.

The value is {parties, gen, arrived, state, broken}; None when nobody waits and nothing is broken. Who
arrives is listed by an id of its own, so that who is interrupted can withdraw, even if it never learned
whether its arrival was written.

    filling   some have arrived in generation `gen`, an id its first arrival drew
    acting    all have arrived, the last one runs the action; newcomers wait for the next generation
    broken    by abort, a timeout or a failed action; everyone gets BrokenBarrier until reset

A waiter of generation g is through when the register speaks of another generation, unless g is in
`broken`, the list of generations that a reset threw out: a slow waiter must not take that for passing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from interlock._core import timing
from interlock._core.client import Client
from interlock._core.register import Cell, check_agreed
from interlock.errors import BrokenBarrier

REMEMBERED = 32  # generations thrown out by a reset that slow waiters may still ask for

Fate = Literal["passed", "broken"]


class BarrierCell:
    def __init__(
        self,
        client: Client,
        name: str,
        parties: int,
        action: Callable[[], object | Awaitable[object]] | None,
        timeout: float | None,
    ) -> None:
        self._cell = Cell(client, "barrier", name)
        self.name = self._cell.name
        self.parties = timing.checked_count(parties, "parties")
        if action is not None and not callable(action):
            raise TypeError("action must be callable")
        self._action = action
        self._timeout = timing.checked_timeout(timeout)
        self.known = 0  # who waits, as last seen; for repr, which never asks the store
        self.known_broken = False

    def _state(self, value: Any) -> dict[str, Any]:
        if value is None:
            self.known_broken = False
            return {"parties": self.parties, "gen": None, "arrived": [], "state": "filling", "broken": []}
        check_agreed(self.name, self.parties, value["parties"])
        self.known_broken = value["state"] == "broken"
        return dict(value)

    def _broken_error(self) -> BrokenBarrier:
        return BrokenBarrier(f"{self.name}: the barrier is broken; reset() mends it")

    async def wait(self, timeout: float | None) -> int:
        timeout = self._timeout if timeout is None else timing.checked_timeout(timeout)
        runtime = self._cell.client.runtime
        until = float("inf") if timeout is None else runtime.now() + timeout
        me = runtime.fresh_id()
        try:
            gen, index = await self._arrive(me, until)
            if index == self.parties - 1:
                await self._pass(gen)
            else:
                await self._await(gen, until)
        except BrokenBarrier:
            raise
        except BaseException:  # whoever waits with us would wait for ever
            await runtime.finish(lambda: self._withdraw(me))
            raise
        return index

    async def _arrive(self, me: str, until: float) -> tuple[str, int]:
        """Stand in the present generation; wait until the one before has gone through."""

        def decide(value: Any) -> tuple[Any, tuple[str, int] | str]:
            state = self._state(value)
            if state["state"] == "broken":
                raise self._broken_error()
            if state["state"] == "acting":
                return value, str(state["gen"])
            arrived = [*state["arrived"], me]
            gen = state["gen"] or me
            state.update(gen=gen, arrived=arrived)
            if len(arrived) == self.parties:
                state["state"] = "acting"
            self.known = len(arrived)
            return state, (gen, len(arrived) - 1)

        while True:
            place, _ = await self._cell.change(decide, until)
            if not isinstance(place, str):
                return place
            await self._await(place, until, waiting=False)

    async def _withdraw(self, me: str) -> None:
        """Interrupted: stand there no longer; the last to arrive, whose action failed, breaks the barrier."""

        def decide(value: Any) -> tuple[Any, None]:
            state = self._state(value)
            if me not in state["arrived"]:
                return value, None
            if state["state"] == "acting":
                state["state"] = "broken"
                return state, None
            state["arrived"] = [other for other in state["arrived"] if other != me]
            return (state if state["arrived"] else self._rest(state["broken"])), None

        await self._cell.change(decide, again=True)

    async def _pass(self, gen: str) -> None:
        """The last to arrive runs the action, then lets everybody through."""
        if self._action is not None:
            result = self._action()
            if isinstance(result, Awaitable):
                await result

        def decide(value: Any) -> tuple[Any, bool]:
            state = self._state(value)
            if state["gen"] != gen:  # thrown out by a reset; or we let it pass and did not hear of it
                return value, gen not in state["broken"]
            if state["state"] == "broken":
                return value, False
            return self._rest(state["broken"]), True

        passed, _ = await self._cell.change(decide, again=True)
        self.known = 0
        if not passed:
            raise self._broken_error()

    def _rest(self, broken: list[str]) -> dict[str, Any] | None:
        """At rest: nothing is kept, unless some waiter may still have to learn that it was thrown out."""
        return {**self._state(None), "broken": broken[-REMEMBERED:]} if broken else None

    def _fate(self, value: Any, gen: str) -> Fate | None:
        state = self._state(value)
        self.known = len(state["arrived"]) if state["state"] == "filling" else 0
        if gen in state["broken"] or (state["gen"] == gen and state["state"] == "broken"):
            return "broken"
        return None if state["gen"] == gen else "passed"

    async def _await(self, gen: str, until: float, *, waiting: bool = True) -> None:
        left = None if until == float("inf") else max(0.0, until - self._cell.client.runtime.now())
        fate = await self._cell.until(lambda value, _: self._fate(value, gen), left)
        if fate is None and waiting:
            fate = await self._break(gen, until)
        if fate != "passed":
            raise self._broken_error()

    async def _break(self, gen: str | None, until: float = float("inf")) -> Fate:
        """Break the barrier for everybody, unless generation `gen` has gone through meanwhile."""

        def decide(value: Any) -> tuple[Any, Fate]:
            state = self._state(value)
            if gen is not None and (fate := self._fate(value, gen)) is not None:
                return value, fate
            state["state"] = "broken"
            return state, "broken"

        fate, _ = await self._cell.change(decide, until, again=True)
        self.known_broken = fate == "broken"
        return fate

    async def abort(self) -> None:
        await self._break(None)
        self.known = 0

    async def reset(self) -> None:
        def decide(value: Any) -> tuple[Any, None]:
            state = self._state(value)
            broken = list(state["broken"])
            if state["gen"] is not None:
                broken.append(state["gen"])
            return self._rest(broken), None

        await self._cell.change(decide, again=True)
        self.known, self.known_broken = 0, False

    async def n_waiting(self) -> int:
        value, _ = await self._cell.read()
        state = self._state(value)
        self.known = len(state["arrived"]) if state["state"] == "filling" else 0
        return self.known

    async def broken(self) -> bool:
        value, _ = await self._cell.read()
        return bool(self._state(value)["state"] == "broken")
