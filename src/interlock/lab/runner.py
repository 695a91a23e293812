"""Plays scenarios: servers up, each run once, servers down, and the verdict."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from interlock._support import clock
from interlock.lab.deployments import KINDS, Kind
from interlock.lab.judge import Run
from interlock.lab.scenario import RUN_NAMES, Finding, Outcome, Result, Scenario
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.testing.history import Record
from interlock.testing.lag import stretched
from interlock.testing.servers.process import FaultUnavailable, ServerMissing, find_program

SLOW = 10.0  # times the ttl with --slow: as long as in life

Watching = Callable[[Record], None]


def played(
    scenario: Scenario,
    *,
    seed: int = 1,
    only: Sequence[str] = (),
    slow: bool = False,
    watching: Watching = lambda record: None,
) -> Result:
    """Play a scenario with the naive lock and with interlock; what it met is in the result, never raised."""
    began = clock.now()
    ttl = stretched(scenario.ttl) * (SLOW if slow else 1.0)
    result = Result(scenario, seed=seed, stretch=ttl / scenario.ttl)
    try:
        for run in RUN_NAMES:
            if run in scenario.programs and (not only or run in only):
                _play(scenario, run, ttl, result, watching)
        told = [version for kind in scenario.servers for version in versions(kind)]
        result.versions = tuple(dict.fromkeys(told))
    except ServerMissing as missing:
        result.skipped, result.missing = str(missing), missing.package
    except FaultUnavailable as unavailable:
        result.skipped = str(unavailable)
    except ImportError as error:
        extra = KINDS[scenario.needs].extra
        result.skipped = f"{error.name} is not installed: pip install 'interlock[{extra}]'"
    result.took = clock.now() - began
    return result


def _play(scenario: Scenario, run: str, ttl: float, result: Result, watching: Watching) -> None:
    with _servers(KINDS[scenario.kind_of(run)]) as servers:
        stage = Stage(scenario, run, ttl, servers, result.seed, watching)
        failure = ""
        try:
            scenario.play(stage)
            stage.add("over", "ok")
        except ServerMissing:
            raise
        except AssertionError as error:  # a fact that did not come, or a client that ended
            failure = str(error) or repr(error)
        finally:
            stage.close()  # before the servers: their witnesses would complain
        result.runs[run] = seen = Run(run, stage.history(), ttl)
    if failure:
        told = Text(f"The run broke off: {failure}", f"运行中断：{failure}")
        result.findings[run] = Finding(Outcome.CANNOT_SAY, told)
    else:
        result.findings[run] = scenario.judge(seen)


@contextmanager
def _servers(kind: Kind) -> Any:
    """Servers of this kind, ended with the block."""
    servers = kind.make()
    try:
        if servers is not None:
            servers.start()
        yield servers
    finally:
        if servers is not None:
            servers.close()


@cache
def versions(needs: str) -> tuple[str, ...]:
    """The versions of the servers of a kind, as their programs tell them."""
    program = KINDS[needs].program
    if program == "zookeeper":
        jars = [path.stem for path in Path("/usr/share/java").glob("zookeeper-[0-9]*.jar")]
        return (jars[0].replace("zookeeper-", "ZooKeeper "),) if jars else ()
    if not program:
        return ()
    with suppress(OSError, subprocess.SubprocessError, ServerMissing):
        path = find_program(program, "", f"/usr/lib/postgresql/*/bin/{program}")
        told = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10)
        return ((told.stdout or told.stderr).strip().splitlines()[0],)
    return ()
