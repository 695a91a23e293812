"""What a scenario is: one famous failure, played with a naive lock and with interlock on the same servers.

A scenario is a class in a file of its own below `scenarios/`. It names its servers, has one program for each
run (the code that the report shows is the code that ran), and says who is started and what is broken when
(`play`). It never says how the run ended: that is read from the history by `interlock.lab.judge`.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar

from interlock.lab.judge import Run
from interlock.lab.texts import Text

if TYPE_CHECKING:
    from interlock.lab.stage import Stage
    from interlock.lab.worker import Me

Program = Callable[["Me"], None]

NAIVE, OURS, GUARDED, MAJORITY, ETCD = "naive", "ours", "guard", "majority", "etcd"

RUN_NAMES: Mapping[str, Text] = {
    NAIVE: Text("naive lock", "朴素的锁"),
    OURS: Text("interlock", "interlock"),
    GUARDED: Text("interlock with guard", "interlock 加 guard"),
    MAJORITY: Text("interlock with replicas=majority", "interlock 加 replicas=majority"),
    ETCD: Text("interlock on etcd", "etcd 上的 interlock"),
}
"""The runs that a scenario may have, in the order in which they are played and shown."""


class Outcome(IntEnum):
    """How a run compares with what the scenario expects; the value is the exit code."""

    AS_EXPECTED = 0
    NOT_AS_EXPECTED = 1
    CANNOT_SAY = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one run, and one or two sentences about it."""

    outcome: Outcome
    text: Text


@dataclass(frozen=True, slots=True)
class Caption:
    """A numbered sentence of the picture, tied to a record, not to a time: so a new recording keeps it right.

    `at` names fields of the record (process, call, kind, error); the first record that has them is meant, or
    the last with `last=True`. The text may name numbers of `Run.facts`, such as `{overlap}`.
    """

    run: str
    at: Mapping[str, str]
    text: Text
    last: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """Something to read on."""

    title: str
    url: str


@dataclass(frozen=True, slots=True)
class Measure:
    """What a number is about that a run measured: its name for people, and its unit ("s" for a duration)."""

    text: Text
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """The lines of a program that matter, with the number of the first in its file."""

    first: int
    lines: tuple[str, ...]


class Scenario(ABC):
    """One failure. Subclasses fill in the data and write `play`."""

    number: ClassVar[int]
    name: ClassVar[str]
    title: ClassVar[Text]
    story: ClassVar[Text]
    """Two sentences: what happens, and why it is believed not to."""
    lesson: ClassVar[Text]
    """What to take home, in one sentence."""
    needs: ClassVar[str]
    """The kind of servers that are started for each run, by its name in `interlock.lab.deployments`."""
    others: ClassVar[Mapping[str, str]] = {}
    """The kind of servers of those runs that need another one."""
    programs: ClassVar[Mapping[str, Program]]
    """The program of each run; see `RUN_NAMES`."""
    captions: ClassVar[tuple[Caption, ...]] = ()
    links: ClassVar[tuple[Link, ...]] = ()
    measures: ClassVar[Mapping[str, Measure]] = {}
    """The numbers that this scenario is about, by the `attempt` of their records; the report draws them."""
    strategies: ClassVar[Mapping[str, Text]] = {}
    """Ways that are compared within the runs, by the `process` of their measures; else the runs are."""
    bound: ClassVar[str] = ""
    """The measure that the first of `measures` must not exceed, such as the stock that is for sale."""
    ttl: ClassVar[float] = 1.0
    """Seconds; shown as "ten seconds, ten times faster". A busy machine stretches it."""
    measured: ClassVar[tuple[str, ...]] = ()
    """The names of the numbers that a run measures; captions may use them."""
    takes: ClassVar[float] = 5.0
    """About how many seconds all runs take together on a quiet machine."""
    naive_fails: ClassVar[bool] = True
    """False where the point is not that the naive lock breaks, but what both do; then `naive_failed` says
    whether it behaved as the story tells."""
    guarded: ClassVar[tuple[str, ...]] = (GUARDED,)
    """The runs in which the resource checks tokens."""

    @property
    def servers(self) -> tuple[str, ...]:
        """All kinds of servers that it needs."""
        return tuple(dict.fromkeys((self.needs, *self.others.values())))

    def kind_of(self, run: str) -> str:
        """The kind of servers that are started for a run."""
        return self.others.get(run, self.needs)

    @abstractmethod
    def play(self, stage: Stage) -> None:
        """Start clients, break what is to be broken, and return when all is over; the same for every run."""

    @abstractmethod
    def naive_failed(self, run: Run) -> bool | None:
        """Whether the naive lock was seen to fail as the story says; None: this run cannot tell."""

    @abstractmethod
    def ours_survived(self, run: Run) -> bool | None:
        """Whether interlock did what it promises; None: this run cannot tell."""

    def verdict(self, run: Run) -> Text:
        """What was seen, in one sentence; a scenario about a number, not about an overlap, says it itself."""
        return run.verdict()

    def judge(self, run: Run) -> Finding:
        """The outcome of a run: a naive lock is expected to fail, interlock to survive."""
        asked = self.naive_failed if run.name == NAIVE else self.ours_survived
        answer = asked(run)
        if answer and run.name != NAIVE and not run.tokens() and not run.measures():
            answer = False  # a run in which nobody was granted, and nothing was measured, shows nothing
        seen = self.verdict(run)
        if answer is None:
            late = Text("This run cannot tell: the machine was too late.", "本次运行无法判断：机器太慢。")
            return Finding(Outcome.CANNOT_SAY, seen + late)
        if answer:
            return Finding(Outcome.AS_EXPECTED, seen)
        if run.name == NAIVE:
            more = Text("The failure could not be reproduced.", "未能重现这个故障。")
        else:
            more = Text("This breaks what interlock promises.", "这违反了 interlock 的承诺。")
        return Finding(Outcome.NOT_AS_EXPECTED, seen + more)

    def listing(self, run: str) -> Listing:
        """The code of a run's program, as it ran."""
        lines, first = inspect.getsourcelines(self.programs[run])
        body = [line.rstrip("\n") for line in lines]
        return Listing(first, tuple(body))


@dataclass(slots=True)
class Result:
    """A scenario that was played, or why it was not."""

    scenario: Scenario
    runs: dict[str, Run] = field(default_factory=dict[str, Run])
    findings: dict[str, Finding] = field(default_factory=dict[str, Finding])
    seed: int = 0
    took: float = 0.0  # seconds
    stretch: float = 1.0  # by how much a busy machine stretched the ttl
    versions: tuple[str, ...] = ()  # of the servers, such as "Redis 7.0.15"
    skipped: str = ""  # why it was not played, in one sentence
    missing: str = ""  # the Debian package that would allow it
    failure: str = ""  # the error of the lab itself, if it could not even be played

    @property
    def outcome(self) -> Outcome | None:
        """The worst of its runs; None if it was skipped."""
        if self.failure:
            return Outcome.CANNOT_SAY
        if self.skipped or not self.findings:
            return None
        outcomes = {finding.outcome for finding in self.findings.values()}
        for worst in (Outcome.NOT_AS_EXPECTED, Outcome.CANNOT_SAY):
            if worst in outcomes:
                return worst
        return Outcome.AS_EXPECTED

    @property
    def command(self) -> str:
        """What repeats it."""
        return f"interlock lab run {self.scenario.name} --seed {self.seed}"
