"""Barriers on a register, with the behaviour of `threading.Barrier`.

The value is {parties, gen, arrived, state, broken}; None when nobody waits and nothing is broken. `arrived`
has the id of each party at its index; null where somebody has left again.

    filling   some have arrived in generation `gen`, an id its first arrival drew
    acting    all have arrived, the last one, `actor`, runs the action; newcomers wait for the next generation
    broken    by abort, a timeout, a failed action or a death in it; everyone gets BrokenBarrier until reset

A party of generation g is through when the register speaks of another generation, unless g is in
`broken`, the list of generations that a reset threw out: a slow party must not take that for passing.

Each party also stands in a `Room` while it waits: it enters that before it is listed in `arrived`, under the
same id. So an id that is listed but has no claim in the room belongs to a process that was killed, or that
was paused for longer than its claim lives. The next party to arrive leaves it out of the list; if it is the
party that runs the action, the barrier breaks. A process that wakes up after such a pause arrives again,
under a new id; if its generation has gone on without it, or nobody can tell, it gets BrokenBarrier.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Literal, TypeAlias

from interlock._core import register, timing
from interlock._core.client import Client
from interlock._core.outage import Outage
from interlock._core.register import Cell, check_agreed, not_ours
from interlock._core.removal import FOR_EVER, GONE, Removal
from interlock._core.room import Room
from interlock._support.wording import duration
from interlock.errors import BrokenBarrier, InterlockError, StoreUnavailable
from interlock.store import WAITERS

MAX_RESETS_REMEMBERED = 32  # generations thrown out by a reset that slow waiters may still ask for
SPREAD_PARTIES = 8  # the eighth party looks after the one that runs the action half as often as the first

Fate = Literal["passed", "broken"]
Role = Literal["wait", "act", "later"]
State: TypeAlias = dict[str, Any]


class BarrierCell:
    """A barrier as all parties share it: its register, and the room where they stand."""

    def __init__(
        self,
        client: Client,
        name: str,
        parties: int,
        action: Callable[[], object | Awaitable[object]] | None,
        timeout: float | None,
    ) -> None:
        self.cell = Cell(client, "barrier", name)
        self.client = client
        self.name = self.cell.name
        self.room = Room(client, f"{self.name}\x1fbarrier{WAITERS}")
        self.parties = timing.checked_count(parties, "parties")
        if action is not None and not callable(action):
            raise TypeError("action must be callable")
        self.action = action
        self._timeout = timing.checked_timeout(timeout)
        self.known = 0  # the number of waiters as last seen; for repr, which never asks the store
        self.known_broken = False

    def state(self, value: Any) -> State:
        if value is None:
            self.known_broken = False
            return {"parties": self.parties, "gen": None, "arrived": [], "state": "filling", "broken": []}
        if not _well_formed(value):
            raise not_ours(self.name, value)
        check_agreed(self.name, self.parties, value["parties"], "parties")
        self.known_broken = value["state"] == "broken"
        return dict(value)

    def rest(self, broken: list[str]) -> State | None:
        """The value while nobody waits: None, unless a waiter may still have to learn that a reset threw it
        out.
        """
        return {**self.state(None), "broken": broken[-MAX_RESETS_REMEMBERED:]} if broken else None

    def fate(self, value: Any, gen: str) -> Fate | None:
        """The end of a generation: passed or broken; None as long as it is neither."""
        state = self.state(value)
        self.known = sum(map(bool, state["arrived"])) if state["state"] == "filling" else 0
        if gen in state["broken"] or (state["gen"] == gen and state["state"] == "broken"):
            return "broken"
        return None if state["gen"] == gen else "passed"

    def broken_error(self) -> BrokenBarrier:
        return BrokenBarrier(f"{self.name}: the barrier is broken; reset() mends it")

    async def wait(self, timeout: float | None) -> int:
        timeout = self._timeout if timeout is None else timing.checked_timeout(timeout)
        until = FOR_EVER if timeout is None else self.client.runtime.now() + timeout
        return await Visit(self, until).run()

    async def break_up(self, gen: str | None, until: float = FOR_EVER) -> Fate:
        """Break the barrier for everybody, unless generation `gen` has gone through meanwhile."""

        def decide(value: Any) -> tuple[Any, Fate]:
            state = self.state(value)
            if gen is not None and (fate := self.fate(value, gen)) is not None:
                return value, fate
            state["state"] = "broken"
            return state, "broken"

        # An abort names no generation: the second time it would break what was reset since the first.
        fate, _ = await self.cell.change(decide, until, again=gen is not None)
        self.known_broken = fate == "broken"
        return fate

    async def abort(self) -> None:
        await self.break_up(None)
        self.known = 0

    async def reset(self) -> None:
        def decide(value: Any) -> tuple[Any, None]:
            if value is not None and not _well_formed(value):
                return None, None
            state = self.state(value)
            broken = list(state["broken"])
            if state["gen"] is not None:
                broken.append(state["gen"])
            return self.rest(broken), None

        # Not `again`: the second time it would throw out a generation that has arrived since the first.
        await self.cell.change(decide)
        self.known, self.known_broken = 0, False

    async def n_waiting(self) -> int:
        value, _ = await self.cell.read()
        state = self.state(value)
        arrived: list[str | None] = state["arrived"] if state["state"] == "filling" else []
        living = await self.room.standings() if arrived else {}
        self.known = sum(id in living for id in arrived)
        return self.known

    async def broken(self) -> bool:
        value, _ = await self.cell.read()
        return bool(self.state(value)["state"] == "broken")


def _well_formed(value: Any) -> bool:
    """Whether the value can be ours. Another program may have written to the store."""
    match value:
        case {
            "parties": int(),
            "gen": str() | None,
            "arrived": [*arrived],
            "state": str(state),
            "broken": [*broken],
        }:
            known = state in ("filling", "broken") or (
                state == "acting" and isinstance(value.get("actor"), str)
            )
            return (
                known
                and all(id is None or isinstance(id, str) for id in arrived)
                and all(isinstance(gen, str) for gen in broken)
            )
        case _:
            return False


class Visit:
    """One party at a barrier, from its arrival until it leaves."""

    def __init__(self, barrier: BarrierCell, until: float) -> None:
        self._barrier, self._cell, self._room = barrier, barrier.cell, barrier.room
        self._runtime = barrier.client.runtime
        self._until = until
        self._me = self._room.newcomer(self._runtime.owner())
        self._ours: str | None = None  # the generation we are listed in
        self._awaited = ""  # the generation whose end we wait for: ours, or the one before it
        self._index = 0
        self._sure = False  # our generation was seen complete, with us: nobody counts without us any more

    def _left(self) -> float:
        return self._until - self._runtime.now()

    async def run(self) -> int:
        """Wait for the others; the order of arrival."""
        try:
            await self._pass()
        except BrokenBarrier:
            await self._runtime.finish(self._leave_quietly)
            raise
        except BaseException as error:  # the others that wait with us would wait for ever
            hurry = isinstance(error, StoreUnavailable) or not isinstance(error, Exception)
            await self._runtime.finish(lambda: self._withdraw(0.0 if hurry else FOR_EVER))
            raise
        if await self._leave() is GONE and not self._sure:
            raise self._left_behind()  # were we counted when the others went through? nobody can tell
        return self._index

    def _left_behind(self) -> BrokenBarrier:
        return BrokenBarrier(
            f"{self._barrier.name}: this process was paused or cut off for more than "
            f"{duration(self._room.ttl)}, and the others may have gone on without it"
        )

    async def _leave(self) -> Removal:
        removal: list[Removal] = []

        async def leave() -> None:
            removal.append(await self._room.leave(self._me, max(0.0, self._left())))

        await self._runtime.finish(leave)
        return removal[0]

    async def _leave_quietly(self, left: float = 0.0) -> None:
        with suppress(InterlockError):  # never over the first error: it lapses by itself
            await self._room.leave(self._me, left)

    async def _enter(self) -> None:
        await self._room.enter(self._me, None if self._until == FOR_EVER else max(0.0, self._left()))

    async def _pass(self) -> None:
        await self._enter()
        while True:
            role = await self._arrive()
            if role == "act":
                return await self._act()
            if await self._through(listed=role == "wait"):
                return None
            if self._me.gone or role == "wait":  # the others count without us: once more, as a newcomer
                await self._room.leave(self._me, 0.0)
                self._me = self._room.newcomer(self._me.owner)
                await self._enter()

    async def _arrive(self) -> Role:
        """Join the present generation, beside those of its parties that are alive."""
        living: set[str] = set()

        async def look(value: Any) -> None:
            """The room, read after the register: everybody that is listed there has stood in the room
            before.
            """
            living.clear()
            if self._barrier.state(value)["arrived"]:
                living.update(await self._room.standings(timing.patience(self._left())))

        def decide(value: Any) -> tuple[Any, Role]:
            state = self._barrier.state(value)
            if state["state"] == "broken":
                raise self._barrier.broken_error()
            if self._ours is not None and state["gen"] != self._ours:
                raise self._left_behind()
            if state["state"] == "acting":
                self._awaited = str(state["gen"])
                return value, "later"
            return self._listed(state, living)

        role, _ = await self._cell.change(decide, self._until, look=look)
        if role != "later":
            self._ours = self._awaited
        return role

    def _listed(self, state: State, living: set[str]) -> tuple[State, Role]:
        """The state with us in the first free place; the place of a party that left or died is free."""
        me, parties = self._me.id, self._barrier.parties
        arrived: list[str | None] = [id if id in living else None for id in state["arrived"]]
        if None not in arrived:
            arrived.append(None)
        self._index = arrived.index(None)
        arrived[self._index] = me
        self._awaited = state["gen"] or me
        self._barrier.known = there = len(arrived) - arrived.count(None)
        state.update(gen=self._awaited, arrived=arrived)
        if there < parties:
            return state, "wait"
        state.update(state="acting", actor=me)
        return state, "act"

    async def _act(self) -> None:
        """The last to arrive runs the action, then lets everybody through."""
        self._sure = True
        gen = self._ours
        if self._barrier.action is not None:
            result = self._barrier.action()
            if isinstance(result, Awaitable):
                await result

        def decide(value: Any) -> tuple[Any, bool]:
            state = self._barrier.state(value)
            if state["gen"] != gen:  # thrown out by a reset; or we let it pass and did not hear of it
                return value, gen not in state["broken"]
            if state["state"] == "broken":
                return value, False
            return self._barrier.rest(state["broken"]), True

        passed, _ = await self._cell.change(decide, again=True)
        self._barrier.known = 0
        if not passed:
            raise self._barrier.broken_error()

    async def _through(self, listed: bool) -> bool:
        """True once our generation is through; False when we must arrive again, as they count without us.

        If we are not `listed`, because the generation before us is still there: False once that is over.
        """
        seen, outage = -1, Outage(self._runtime, self._until)
        while True:
            try:
                value, version = await self._cell.read(self._left())
                outage.over()
                fate = self._barrier.fate(value, self._awaited)
                if fate is not None:
                    break
                state = self._barrier.state(value)
                pause = register.RECHECK_PERIOD_S
                if state["state"] == "acting":
                    self._sure = self._sure or self._me.id in state["arrived"]
                    pause = await self._look_after(state["actor"], first=version != seen)
                elif self._me.gone or self._me.id not in state["arrived"]:
                    return False
                if (left := self._left()) <= 0:
                    fate = await self._late(listed)
                    break
                seen = version
                await self._cell.changed(version, min(left, pause))
            except StoreUnavailable:  # a server that restarts; what is written here may be written again
                if not await outage.endured():
                    raise
        if fate == "broken":
            raise self._barrier.broken_error()
        return listed

    async def _late(self, listed: bool) -> Fate:
        """The time is up: that breaks the barrier for those who count on us."""
        return await self._barrier.break_up(self._ours, self._until) if listed else "broken"

    async def _look_after(self, actor: str, first: bool) -> float:
        """Break the barrier if the party that runs the action is dead; otherwise return how long to wait for
        its end.

        Most actions are over before anybody looks. The first parties look more often than the last: of a
        thousand not everybody must ask every few seconds.
        """
        pause = register.RECHECK_PERIOD_S
        if not first:
            standings = await self._room.standings(timing.patience(self._left()))
            if actor not in standings:
                await self._barrier.break_up(self._awaited, self._until)
                return 0.0
            pause = standings[actor].lapses_in + timing.REACTION_S
        return min(register.RECHECK_PERIOD_S, self._room.ttl / 2, pause) * (1 + self._index / SPREAD_PARTIES)

    async def _withdraw(self, left: float) -> None:
        """Leave the barrier after an interrupt. If we were the last to arrive and the action failed, the
        barrier breaks.

        If the store cannot be reached now, the others no longer count us once our claim in the room has
        lapsed.
        """
        me = self._me.id

        def decide(value: Any) -> tuple[Any, None]:
            state = self._barrier.state(value)
            if me not in state["arrived"]:
                return value, None
            if state["state"] == "acting":
                state["state"] = "broken"
                return state, None
            state["arrived"] = arrived = [None if id == me else id for id in state["arrived"]]
            return (state if any(arrived) else self._barrier.rest(state["broken"])), None

        with suppress(InterlockError):  # never over the first error
            if self._me.stands:
                await self._cell.change(decide, self._runtime.now() + left, again=True)
        await self._leave_quietly(left)
