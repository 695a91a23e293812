"""What `store.Register` promises: a value with a version that only grows."""

from __future__ import annotations

from functools import partial
from typing import ClassVar
from uuid import uuid4

from interlock.model import Versioned
from interlock.store import Store
from interlock.testing.conformance.store import StoreSuite

NOTHING = Versioned(None, 0)


class Registers(StoreSuite):
    """Read, compare and set."""

    wanted: ClassVar[dict[str, object]] = {"registers": True}

    async def write(self, store: Store, version: int, value: str | None) -> int:
        written = await store.compare_and_set(self.name, version, value, uuid4().hex)
        assert written is not None
        assert written.value == value
        return written.version

    async def test_what_was_never_written_reads_as_nothing(self) -> None:
        assert await self.store().read(self.name) == NOTHING

    async def test_what_was_written_is_read_with_its_version(self) -> None:
        store = self.store()
        version = await self.write(store, 0, "first")
        assert version > 0
        assert await self.store().read(self.name) == Versioned("first", version)

    async def test_a_write_over_another_version_changes_nothing(self) -> None:
        store = self.store()
        version = await self.write(store, 0, "first")
        for stale in (0, version - 1, version + 1):
            assert await store.compare_and_set(self.name, stale, "second", uuid4().hex) is None
        assert await store.read(self.name) == Versioned("first", version)

    async def test_nothing_is_written_over_a_version_that_never_was(self) -> None:
        store = self.store()
        assert await store.compare_and_set(self.name, 7, "x", uuid4().hex) is None
        assert await store.read(self.name) == NOTHING

    async def test_versions_only_grow_also_across_deletions(self) -> None:
        store, versions = self.store(), [0]
        for value in ("a", "b", None, "c", None, None, "d"):
            versions.append(await self.write(store, versions[-1], value))
        assert versions == sorted(set(versions))

    async def test_a_deletion_is_read_with_its_version(self) -> None:
        store = self.store()
        version = await self.write(store, await self.write(store, 0, "x"), None)
        assert await store.read(self.name) == Versioned(None, version)

    async def test_repeating_a_write_that_was_applied_answers_as_then(self) -> None:
        store, id = self.store(), uuid4().hex
        first = await store.compare_and_set(self.name, 0, "x", id)
        assert await store.compare_and_set(self.name, 0, "x", id) == first
        assert await store.read(self.name) == first

    async def test_repeating_a_deletion_that_was_applied_answers_as_then(self) -> None:
        store, id = self.store(), uuid4().hex
        version = await self.write(store, 0, "x")
        first = await store.compare_and_set(self.name, version, None, id)
        assert first is not None
        assert await store.compare_and_set(self.name, version, None, id) == first

    async def test_repeating_a_write_after_another_wrote_changes_nothing(self) -> None:
        store, id = self.store(), uuid4().hex
        first = await store.compare_and_set(self.name, 0, "x", id)
        assert first is not None
        version = await self.write(store, first.version, "y")
        assert await store.compare_and_set(self.name, 0, "x", id) is None
        assert await store.read(self.name) == Versioned("y", version)

    async def test_of_those_who_write_at_once_one_wins(self) -> None:
        stores = [self.store() for _ in range(4)]

        async def write(store: Store) -> bool:
            return await store.compare_and_set(self.name, 0, uuid4().hex, uuid4().hex) is not None

        actors = [self.spawn(partial(write, store)) for store in stores]
        assert [await actor.result() for actor in actors].count(True) == 1

    async def test_no_update_is_lost(self) -> None:
        async def count() -> None:
            store, done = self.store(), 0
            while done < 10:
                read = await store.read(self.name)
                value = str(int(read.value or 0) + 1)
                done += await store.compare_and_set(self.name, read.version, value, uuid4().hex) is not None

        for actor in [self.spawn(count) for _ in range(3)]:
            await actor.result()
        assert (await self.store().read(self.name)).value == "30"

    async def test_values_are_kept_word_for_word(self) -> None:
        store, version = self.store(), 0
        for value in ("", " ", "0", "null", "ünïcödé 🔒 \" ' \\ \n {} %s", "x" * 100_000):
            version = await self.write(store, version, value)
            assert await store.read(self.name) == Versioned(value, version)

    async def test_registers_and_resources_of_one_name_do_not_meet(self) -> None:
        store, claim = self.store(), self.claim()
        await self.held(store, claim)
        assert await store.read(self.name) == NOTHING
        await self.write(store, 0, "x")
        assert len((await store.inspect(self.name)).standings) == 1
        await store.release(self.name, claim.id)
        assert (await store.read(self.name)).value == "x"
        assert await store.scan("", "", 10) == []

    async def test_two_names_never_share_a_register(self) -> None:
        store = self.store()
        await self.write(store, 0, "x")
        for other in (self.name.upper(), self.name + " ", self.name[:-1], f"{self.name}\x1fx"):
            assert await store.read(other) == NOTHING
