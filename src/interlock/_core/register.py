"""The register: a value with a version. Everything that is not a queue of claims is built on it.

Kinds of registers are kept apart by a prefix no user's name can have.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeVar, cast

from interlock._core import timing
from interlock._core.attempt import MAX_CLAIM_TRIES, QUICK_REFUSAL_S
from interlock._core.client import Client
from interlock._core.names import checked_name
from interlock._core.outage import Outage
from interlock.errors import (
    HeldUp,
    InvalidSetting,
    SettingsMismatch,
    StoreUnavailable,
    StoreUnfit,
    Unreached,
    Unsupported,
)
from interlock.model import Versioned

R = TypeVar("R")

RECHECK_PERIOD_S = 5.0  # seconds: a missed wake-up costs no more than this
MAX_VALUE_BYTES = 2**20
SHALLOW = 50  # levels of a value that always fit into the stack


class Cell:
    """One register of one kind, with JSON values; None means that nothing is there."""

    def __init__(self, client: Client, kind: str, name: str) -> None:
        client.check_open()
        traits = client.store.traits
        if not traits.registers:
            raise Unsupported(
                f"{traits.backend} keeps no registers, which events, latches, barriers and marks are made "
                "of: its majorities settle who holds a lock, not the order of writes; keep these on one "
                "server"
            )
        self.client = client
        self.name = checked_name(name)
        self._key = f"{kind}\x1f{self.name}"

    async def read(self, left: float = float("inf")) -> tuple[Any, int]:
        read = await self._read(left)
        return self._decoded(read), read.version

    async def _read(self, left: float) -> Versioned:
        self.client.check_open()
        with self.client.while_open():
            return await self.client.store.read(self._key, timing.patience(left))

    def _decoded(self, read: Versioned) -> Any:
        try:
            return decoded(read)
        except RecursionError:
            if not nested(read.value or ""):  # not its fault: the caller is near the recursion limit
                raise
            raise StoreUnfit(f"{self.name}: its value is nested too deeply to be read here") from None
        except (ValueError, TypeError) as error:
            raise StoreUnfit(
                f"{self.name}: what the store keeps under this name is not what interlock wrote ({error}); "
                "see who else may write there, and remove it"
            ) from None

    @staticmethod
    def as_read(value: Any) -> Any:
        """A value of the user's as everybody reads it who comes later; `InvalidSetting` if a part of it
        would be lost, because two of its keys become one.
        """
        if (text := encoded(value)) is None:
            return None
        import json

        return json.loads(text, object_pairs_hook=_dictionary)

    async def compare_and_set(self, version: int, value: Any, until: float = float("inf")) -> int | None:
        """The new version, or None if the register has changed since `version` was read.

        A lost reply is answered by asking again under the same id: the store knows its own writer, unless
        another has written since. Then `StoreUnavailable` says that the write may have been applied.
        """
        written, sure = await self._write(version, self._encoded(value), until)
        if not sure:
            raise self._unknown()
        return written

    def _encoded(self, value: Any) -> str | None:
        return encoded(value, self.client.store.traits.largest_value)

    def _perhaps_applied(self, error: StoreUnavailable) -> StoreUnavailable:
        return StoreUnavailable(f"{error}; the change of {self.name} may have been applied: read it again")

    def _unknown(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self.name}: the change may have been applied: its answer was lost, and others have written "
            "since; read it again"
        )

    async def _write(self, version: int, text: str | None, until: float) -> tuple[int | None, bool]:
        """The new version or None, and whether that is certain.

        Only here is a write sent again. A store that did so by itself would hide that its first copy may have
        counted.
        """
        self.client.check_open()
        runtime = self.client.runtime
        id, sent = runtime.fresh_id(), False
        for tries in range(MAX_CLAIM_TRIES):
            asked = runtime.now()
            patience = timing.patience(until - asked)
            try:
                written = await self.client.store.compare_and_set(self._key, version, text, id, patience)
            except StoreUnavailable as error:
                sent = sent or not isinstance(error, Unreached)
                # A server that takes no writes, or a locked file, is waited for once and not three times.
                waited = not (sent or isinstance(error, HeldUp)) and runtime.now() - asked > QUICK_REFUSAL_S
                if tries == MAX_CLAIM_TRIES - 1 or waited or runtime.now() >= until:
                    if not sent:
                        raise
                    raise self._perhaps_applied(error) from None
                await runtime.sleep(0.02 * 4**tries)
            else:
                # Refused, but perhaps because an earlier try of ours was applied and then written over.
                return (None, not sent) if written is None else (written.version, True)
        raise AssertionError("unreachable")

    async def change(
        self,
        decide: Callable[[Any], tuple[Any, R]],
        until: float = float("inf"),
        *,
        again: bool = False,
        look: Callable[[Any], Awaitable[None]] | None = None,
    ) -> tuple[R, int]:
        """Write `decide(value)[0]` over the value it was given, however often others come between.

        `decide` may be called again with a newer value; what it returns beside the value, for the call that
        counted, is returned with the new version. An equal value is not written, but confirmed as a write is:
        it may be that of an earlier call which was told that nobody knows. `StoreUnavailable` is raised
        when the change may have been applied and nobody knows. With `again` it is decided anew instead: only
        for a `decide` that recognises its own work in the value, whatever others have done to that since.
        `look(value)` is awaited before each `decide(value)`, for what must be asked after the value was read.
        """
        while True:
            read = await self._read(until - self.client.runtime.now())
            value, version = self._decoded(read), read.version
            if look is not None:
                await look(value)
            new, result = decide(value)
            # By their texts: `decide` may have changed the value itself, and 1 == True.
            if (text := self._encoded(new)) == read.value:
                if await self._confirmed(version, until):
                    return result, version
                continue
            written, sure = await self._write(version, text, until)
            if written is not None:
                return result, written
            if not (sure or again):
                raise self._unknown()
            await self.client.runtime.sleep(0.002 * self.client.runtime.random())

    async def _confirmed(self, version: int, until: float) -> bool:
        """Whether the register still has the version that was read, as sure as after a write."""
        patience = timing.patience(until - self.client.runtime.now())
        try:
            return await self.client.store.confirm_read(self._key, version, patience)
        except Unreached:
            raise
        except StoreUnavailable as error:
            raise self._perhaps_applied(error) from None

    async def differing(self, seen: int, timeout: float | None) -> tuple[Any, int] | None:
        """The value and version once the version is not `seen`; None when the time was up."""
        return await self.until(
            lambda value, version: None if version == seen else (value, version),
            timing.checked_timeout(timeout),
        )

    async def until(self, enough: Callable[[Any, int], R | None], timeout: float | None) -> R | None:
        """The first result of `enough(value, version)` that is not None; None if the time was up.

        It goes on while the store restarts, and raises `StoreUnavailable` if that does not end in time.
        """
        runtime = self.client.runtime
        end = math.inf if timeout is None else runtime.now() + timeout
        outage = Outage(runtime, end)
        while True:
            try:
                value, version = await self.read(end - runtime.now())
                outage.over()
                result = enough(value, version)
                if result is not None:
                    return result
                left = end - runtime.now()
                if left <= 0:
                    return None
                await self.changed(version, min(left, RECHECK_PERIOD_S))
            except StoreUnavailable:
                if not await outage.endured():
                    raise

    async def changed(self, version: int, timeout: float) -> None:
        """Return when the version may differ, or after `timeout` seconds."""
        with self.client.while_open():
            await self.client.store.watch_register(self._key, version, timeout)


def encoded(value: Any, longest: int | None = None) -> str | None:
    """The value as JSON, which is ASCII; `InvalidSetting` if it has more characters than the store can
    hold in a register.
    """
    if value is None:
        return None
    import json  # here, not above: `import interlock` stays light

    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise InvalidSetting(f"a register's value must be JSON: {error}") from None
    except RecursionError:
        if not deep(value):  # not its fault: the caller is near the recursion limit
            raise
        raise InvalidSetting("a register's value is nested too deeply to be written as JSON") from None
    most = min(MAX_VALUE_BYTES, longest or MAX_VALUE_BYTES)
    if len(text) > most:
        raise InvalidSetting(f"a register's value has at most {most} characters of JSON, not {len(text)}")
    return text


def decoded(read: Versioned) -> Any:
    import json

    return None if read.value is None else json.loads(read.value)


def _dictionary(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InvalidSetting(
            f"a register's value must be JSON, whose keys are texts: two keys of a dictionary both become "
            f"{twice!r:.40}"
        )
    return found


def nested(text: str) -> bool:
    """Whether a text of JSON is nested more than a program near its recursion limit has room for."""
    return text.count("[") + text.count("{") > SHALLOW


def deep(value: Any) -> bool:
    """As `nested`, of the value itself, which may even be part of itself."""
    level: Collection[Any] = [value]
    for _ in range(SHALLOW):
        parts: dict[int, Any] = {}
        for outer in level:
            if isinstance(outer, (dict, list, tuple)):
                inside = cast("Collection[Any]", outer.values() if isinstance(outer, dict) else outer)
                parts |= {id(inner): inner for inner in inside}
        level = parts.values()
    return bool(level)


class EventCell:
    """A flag for everyone: set, clear, wait."""

    def __init__(self, client: Client, name: str) -> None:
        self._cell = Cell(client, "event", name)
        self.name = self._cell.name
        self.known = False  # for repr, which never asks the store

    async def is_set(self) -> bool:
        value, _ = await self._cell.read()
        self.known = value is not None
        return self.known

    async def set(self) -> None:
        await self._cell.change(lambda _: (1, None))
        self.known = True

    async def clear(self) -> None:
        # Not `again`: the second time it would undo what another has set since the first.
        await self._cell.change(lambda _: (None, None))
        self.known = False

    async def wait(self, timeout: float | None) -> bool:
        """True once it is set, even if it is cleared again before this waiter wakes."""
        timeout = timing.checked_timeout(timeout)
        first: list[int] = []

        def enough(value: Any, version: int) -> bool | None:
            if not first:
                first.append(version)
            # An event is written only to set or to clear it, so a later version means it was set.
            return True if value is not None or version > first[0] else None

        return bool(await self._cell.until(enough, timeout))


class LatchCell:
    """A count that goes down to 0, and a wait for that.

    The value is [start, left, opened]: `opened` counts how often it was open, so that a waiter which wakes up
    late can tell that it was open although it was reset since. After a reset, start is 0: nobody has to agree
    with those before.
    """

    def __init__(self, client: Client, name: str, count: int) -> None:
        self._cell = Cell(client, "latch", name)
        self.name = self._cell.name
        self.start = timing.checked_count(count, "count")

    def _state(self, value: Any) -> tuple[int, int]:
        """How much is left, and how often it was open."""
        if value is None:
            return self.start, 0
        match value:
            case [int(start), int(left), int(opened)]:
                pass
            case _:
                raise not_ours(self.name, value)
        if start == 0:
            return self.start, opened
        check_agreed(self.name, self.start, start, "count")
        return left, opened

    async def count(self) -> int:
        value, _ = await self._cell.read()
        return self._state(value)[0]

    async def count_down(self, by: int) -> int:
        by = timing.checked_count(by, "n")

        def decide(value: Any) -> tuple[Any, int]:
            before, opened = self._state(value)
            left = max(0, before - by)
            return [self.start, left, opened + (before > 0 and left == 0)], left

        left, _ = await self._cell.change(decide)
        return left

    async def wait(self, timeout: float | None) -> bool:
        """True once the count is 0, even if it is reset before this waiter wakes."""
        timeout = timing.checked_timeout(timeout)
        first: list[int] = []

        def enough(value: Any, _: int) -> bool | None:
            left, opened = self._state(value)
            if not first:
                first.append(opened)
            return True if left == 0 or opened > first[0] else None

        return bool(await self._cell.until(enough, timeout))

    async def reset(self) -> None:
        def decide(value: Any) -> tuple[Any, None]:
            match value:
                case [int(), int(), int(opened)] if opened > 0:
                    return [0, 0, opened], None
                case _:  # never open, or not ours
                    return None, None

        # Not `again`: the second time it would take back what others have counted down since the first.
        await self._cell.change(decide)


def not_ours(name: str, value: Any) -> StoreUnfit:
    return StoreUnfit(
        f"{name}: the store keeps {value!r:.40} under this name, which interlock did not write; see who else "
        "may write there, and remove it"
    )


def check_agreed(name: str, asked: int, standing: int, setting: str) -> None:
    if asked != standing:
        raise SettingsMismatch(name, asked, standing, setting)
