"""A storm from beginning to end: servers up, faults and work, servers down, the verdict, and its history."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from interlock._support import clock
from interlock.lab.deployments import KINDS as SERVERS
from interlock.lab.runner import versions
from interlock.lab.storm.deployments import KINDS, UnknownKind
from interlock.lab.storm.director import Scene, Storm, rage
from interlock.lab.storm.history import StormHistory
from interlock.lab.storm.verdict import Verdict
from interlock.testing.servers.process import FaultUnavailable, ServerMissing

TTLS = {"zookeeper": 1.5}
"""Seconds: longer where a session has to be longer still. Not stretched: a lease that a busy machine loses is
no crime, and shorter leases meet more faults."""
TTL_S = 0.8
MEMORY = Path("/dev/shm")


@dataclass(slots=True)
class StormResult:
    """What came of a storm, or why there was none."""

    kind: str
    storm: Storm
    verdict: Verdict | None = None
    history: StormHistory | None = None
    faults: dict[str, int] = field(default_factory=dict[str, int])
    """How often each fault happened, by its name."""
    rows: dict[str, str] = field(default_factory=dict[str, str])
    """The row of each fault in the published matrix, and its promise, as in `server E`."""
    versions: tuple[str, ...] = ()
    took: float = 0.0
    skipped: str = ""
    missing: str = ""
    failure: str = ""
    """Why nobody can say: a fact that did not come, or an error of the lab itself."""

    @property
    def code(self) -> int:
        """The exit code: as those of scenarios."""
        if self.skipped:
            return 77
        if self.verdict is not None and self.verdict.violations:
            return 1
        return 2 if self.failure or self.verdict is None else 0

    @property
    def command(self) -> str:
        """What repeats it."""
        seconds = 30.0 if self.storm.seconds is None else self.storm.seconds
        synchronizer = (
            f" --synchronizer {self.storm.synchronizer}" if self.storm.synchronizer != "lock" else ""
        )
        return f"interlock lab chaos {self.kind} --seconds {seconds:g} --seed {self.storm.seed}{synchronizer}"

    def pack(self) -> dict[str, Any]:
        """For programs: one line of JSON."""
        return {
            "kind": self.kind,
            "synchronizer": self.storm.synchronizer,
            "seed": self.storm.seed,
            "at": datetime.now().astimezone().isoformat(timespec="seconds"),
            "code": self.code,
            "took": round(self.took, 1),
            "numbers": {} if self.verdict is None else self.verdict.numbers,
            "faults": self.faults,
            "rows": self.rows,
            "violations": [] if self.verdict is None else [str(one) for one in self.verdict.violations],
            "versions": list(self.versions),
            "why": self.skipped or self.failure,
            "command": self.command,
        }


def chaos(kind: str, storm: Storm, *, keep: bool = False) -> StormResult:
    """Let a storm take place on throw-away servers; what it met is in the result, never raised.

    The history is kept if the verdict is not clean, or if asked for.
    """
    if kind not in KINDS:
        raise UnknownKind(kind)
    began = clock.now()
    result = StormResult(kind, storm)
    try:
        with files_in_memory():
            _played(result, keep)
        result.versions = versions(KINDS[kind].servers)
    except ServerMissing as missing:
        result.skipped, result.missing = str(missing), missing.package
    except FaultUnavailable as unavailable:
        result.skipped = str(unavailable)
    except ImportError as error:
        extra = SERVERS[KINDS[kind].servers].extra
        result.skipped = f"{error.name} is not installed: pip install 'interlock[{extra}]'"
    result.took = clock.now() - began
    return result


@contextmanager
def files_in_memory() -> Iterator[None]:
    """Let temporary folders be made in memory, where there is some: with it, servers that wait for their disk
    after each write do not wait for what other programs write there.
    """
    before = tempfile.tempdir
    if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK | os.X_OK):
        tempfile.tempdir = str(MEMORY)
    try:
        yield
    finally:
        tempfile.tempdir = before


def _played(result: StormResult, keep: bool) -> None:
    ttl = TTLS.get(result.kind, TTL_S)
    made = Scene(result.kind, ttl)
    try:
        try:
            made.field.start()
            result.verdict = rage(made, result.storm)
        except (ServerMissing, FaultUnavailable, ImportError):
            raise
        except Exception as error:  # of servers that do not come back, or of the lab
            result.failure = f"{type(error).__name__}: {error}"
        finally:
            made.close()
        result.rows = {fault.name: f"{fault.row} {fault.promised()}" for fault in made.field.faults}
        records = made.history()
        happened = Counter(
            record.error.partition(": ")[2]
            for record in records
            if record.call == "fault" and record.kind == "ok" and record.attempt.startswith("fault")
        )
        result.faults = dict(happened.most_common())
        if keep or result.failure or (result.verdict and result.verdict.violations):
            result.history = StormHistory(
                result.kind, result.storm.seed, result.storm.synchronizer, made.last_terms(), records
            )
    finally:
        made.forget()


def keep_history(history: StormHistory, folder: Path) -> Path:
    """Write the history into this folder, and return where it is."""
    path = folder / f"chaos-{history.kind}-{history.seed}.jsonl"
    history.write(path)
    return path
