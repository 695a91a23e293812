"""Time: lapses count on the boot clock alone, tokens rise whatever the wall clock does, a reboot frees all."""

from __future__ import annotations

import os

import pytest

from interlock._core.drive import drive
from interlock.backends.sql.sqlite.file.clock import Clock
from interlock.backends.sql.sqlite.tables.row import live
from interlock.model import Busy, Granted, Renewal, Renewed
from tests.sqlite.common import ManualClock, claim, rows
from tests.sqlite.conftest import Open


def granted(answer: object) -> Granted:
    assert isinstance(answer, Granted), answer
    return answer


@pytest.mark.parametrize("jump", [-3_600_000_000, 3_600_000_000])
def test_the_wall_clock_decides_nothing_about_a_lease(opened: Open, jump: int) -> None:
    manual = ManualClock()
    store = opened(clock=manual.clock)
    granted(drive(store.claim(claim(id="a", ttl=10.0))))
    manual.micros += jump
    assert isinstance(drive(store.claim(claim(id="b"))), Busy)
    assert drive(store.renew([Renewal("r", "a", 10.0)])) == [Renewed(10.0)]
    manual.now += 9.9
    assert isinstance(drive(store.claim(claim(id="b"))), Busy)
    manual.now += 0.2
    granted(drive(store.claim(claim(id="b"))))


def test_tokens_rise_when_the_wall_clock_is_set_back(opened: Open) -> None:
    manual = ManualClock()
    store, other = opened(clock=manual.clock), opened(clock=manual.clock)
    tokens: list[int] = []
    for turn in range(6):
        holder = (store, other)[turn % 2]
        tokens.append(granted(drive(holder.claim(claim(id=f"{turn}")))).token)
        assert drive(holder.release("r", f"{turn}"))
        manual.micros -= 500_000_000
    assert tokens == sorted(set(tokens))


def test_tokens_rise_when_the_file_is_deleted(opened: Open, path: str) -> None:
    store = opened()
    before = granted(drive(store.claim(claim()))).token
    drive(store.close())
    os.unlink(path)
    assert granted(drive(opened().claim(claim()))).token > before


def test_tokens_and_versions_come_from_one_source(opened: Open) -> None:
    manual = ManualClock(micros=0)
    store = opened(clock=manual.clock)
    numbers: list[int] = []
    for turn in range(3):
        written = drive(store.compare_and_set(f"n{turn}", 0, "v", f"w{turn}"))
        assert written
        numbers += [written.version, granted(drive(store.claim(claim(f"r{turn}", f"c{turn}")))).token]
    assert numbers == sorted(set(numbers))


def test_a_reboot_frees_everything_at_once_where_boots_have_names(opened: Open, path: str) -> None:
    before, after = ManualClock(now=5000.0, boot="first"), ManualClock(now=20.0, boot="second")
    after.micros = before.micros + 60_000_000
    drive(opened(clock=before.clock).claim(claim(id="a", ttl=86400.0)))
    granted(drive(opened(clock=after.clock).claim(claim(id="b"))))
    assert rows(path) == 1


def test_a_claim_of_an_earlier_boot_that_seems_to_lie_ahead_blocks_nobody(opened: Open) -> None:
    before, after = ManualClock(now=5000.0, boot=""), ManualClock(now=20.0, boot="")
    drive(opened(clock=before.clock).claim(claim(id="a", ttl=30.0)))
    granted(drive(opened(clock=after.clock).claim(claim(id="b"))))


def test_a_claim_of_an_earlier_boot_never_blocks_longer_than_its_ttl(opened: Open) -> None:
    before, after = ManualClock(now=25.0, boot=""), ManualClock(now=20.0, boot="")
    drive(opened(clock=before.clock).claim(claim(id="a", ttl=30.0)))
    store = opened(clock=after.clock)
    answer = drive(store.claim(claim(id="b", queued=False)))
    if isinstance(answer, Busy):
        after.now += 36.0
        answer = drive(store.claim(claim(id="b", queued=False)))
    granted(answer)


def test_neighbours_with_boot_ids_of_their_own_keep_their_claims(opened: Open) -> None:
    """Some containers are shown a boot id of their own, and share the kernel and its clock with the others."""
    manual, neighbour = ManualClock(boot="container-1"), ManualClock(boot="container-2")
    drive(opened(clock=manual.clock).claim(claim(id="a")))
    assert isinstance(drive(opened(clock=neighbour.clock).claim(claim(id="b"))), Busy)


def test_the_clock_of_this_machine_is_shared_and_its_boot_is_known() -> None:
    one, two = Clock(), Clock()
    assert one.now() <= two.now() <= one.now() + 1.0
    assert one.boot == two.boot
    assert not one.restarted(two.boot, two.booted())


def test_a_row_lives_from_now_to_its_lapse_and_no_further_than_its_ttl() -> None:
    assert live(10.0, 10.1, 5.0)
    assert not live(10.0, 10.0, 5.0)
    assert live(10.0, 15.0, 5.0)
    assert not live(10.0, 17.0, 5.0)
