"""The rounds of a soak: which kinds, which synchronizers, and the same for the same seed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp

import pytest

from interlock.lab.storm.deployments import KINDS
from interlock.lab.storm.soak import OTHERS, REFUSED_BY, rounds
from interlock.testing.patience import PATIENCE, until
from tests.environment import environment


def planned(count: int, seed: int = 1) -> list[tuple[str, str, int]]:
    some = islice(rounds(seed, list(KINDS)), count)
    return [(kind, storm.synchronizer, storm.seed) for kind, storm in some]


def test_every_kind_has_its_turn_and_two_of_three_rounds_are_about_locks() -> None:
    found = planned(len(KINDS))
    assert [kind for kind, _, _ in found] == list(KINDS)
    assert sum(used == "lock" for _, used, _ in found) == len(KINDS) - len(KINDS) // 3


def test_every_other_synchronizer_has_its_turn_within_two_rounds_over_all_kinds() -> None:
    assert {used for _, used, _ in planned(2 * len(KINDS))} == {"lock", *OTHERS}


def test_no_kind_gets_a_synchronizer_that_it_refuses() -> None:
    for kind, used, _ in planned(40 * len(KINDS)):
        assert kind not in REFUSED_BY.get(used, ()), (kind, used)


def test_the_same_seed_plans_the_same_rounds_and_another_seed_others() -> None:
    assert planned(30) == planned(30)
    assert planned(30) != planned(30, seed=2)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_soak_in_the_background_ends_in_good_order_when_it_is_told_to(
    number: signal.Signals, tmp_path: Path
) -> None:
    folder = Path(mkdtemp(prefix="il-"))  # a socket's path is short
    argv = [
        sys.executable,
        "-m",
        "interlock.lab.storm.soak",
        "--store",
        "sqlite",
        "--file",
        str(tmp_path / "s"),
    ]
    env = {**environment(), "TMPDIR": str(folder)}
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": env}
    # As a shell that is no terminal's starts what stands before &.
    with subprocess.Popen(argv, preexec_fn=_deaf_to_ctrl_c, **quiet) as program:  # type: ignore[call-overload]
        until(lambda: list(folder.glob("interlock-storm-*/p4.jsonl")))
        os.kill(program.pid, number)
        told, _ = program.communicate(timeout=PATIENCE)
    assert "interrupted: all servers and workers were ended" in told
    assert list(folder.iterdir()) == []
    folder.rmdir()


def _deaf_to_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
