"""What a store gets that writes only what is its own."""

from __future__ import annotations

import pytest

from interlock._core.drive import drive
from interlock.errors import Unsupported
from interlock.store import NoRegisters, StoreDefaults


class Plain(StoreDefaults, NoRegisters):
    no_registers = "there are none"


def test_a_plain_store_serves_threads_and_the_keeper_itself() -> None:
    store = Plain()
    assert {id(store)} == {id(store.blocking()), id(store.for_keeper())}
    assert store.part("any") == ""
    assert not store.inside()


def test_a_store_without_registers_says_so() -> None:
    store = Plain()
    for call in (
        store.read("x"),
        store.compare_and_set("x", 0, "v", "id"),
        store.watch_register("x", 0, 1.0),
    ):
        with pytest.raises(Unsupported, match="there are none"):
            drive(call)
