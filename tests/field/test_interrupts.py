"""Ctrl-C at random moments of taking and giving back: nothing stands that nobody would give back."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import interlock
from tests.field.process import Process
from tests.field.strikes import struck
from tests.patience import PATIENCE

needs_timers = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs signal.setitimer")


@needs_timers
@pytest.mark.parametrize("seed", [1, 2])
def test_no_claim_is_orphaned_on_memory(seed: int) -> None:
    strikes, unknown, left = struck("memory://", 8_000, seed)
    assert strikes > 500
    assert (unknown, left) == (0, 0)


@needs_timers
def test_no_claim_is_orphaned_on_sqlite(tmp_path: Path) -> None:
    strikes, unknown, left = struck(f"sqlite:///{tmp_path}/locks.db", 3_000, 3)
    assert strikes > 200
    assert (unknown, left) == (0, 0)


def test_a_program_ended_by_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    with interlock.connect(url) as see, Process("sync", url) as program:
        program.tell("lease = client.lock('held').acquire(); None")
        program.send("client.lock('held2').acquire(); client.lock('held2').acquire()")
        program._process.send_signal(signal.SIGINT)
        assert program._process.wait(PATIENCE) != 0
        assert list(see.scan()) == []
