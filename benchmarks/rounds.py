"""Measuring in turns: every round asks every case once, so that what the machine does meanwhile hits all."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import ExitStack
from statistics import median

from benchmarks import pace
from benchmarks.question import Question, Result


def pin(cores: int) -> None:
    """Keep this process and its children on the first `cores` cores, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(ALL_CORES)[:cores]
        os.sched_setaffinity(0, allowed)


ALL_CORES = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}


def ask(question: Question, cores: int, rounds: int | None = None, place: str = "") -> Result:
    """All cases of a question, in rounds; `place` says how far the whole run is."""
    result = Result(question, cores, {case.name: [] for case in question.cases})
    pin(cores)
    count = rounds or (min(pace.QUICK_ROUNDS, question.rounds) if pace.hurried() else question.rounds)
    asked = f"{place}{question.name}: {count} rounds on {cores} core{'s' * (cores > 1)}"
    if not sys.stderr.isatty():
        sys.stderr.write(f"{asked}\n")
        sys.stderr.flush()
    with ExitStack() as stack:
        measures = [(case.name, stack.enter_context(case.open())) for case in question.cases]
        for name, measure in measures:
            show(f"{asked}: {name} for the first time")
            measure()  # the first time pays for caches and connections
        gc.collect()
        gc.disable()
        try:
            for number in range(count):
                first = number % len(measures)
                for name, measure in measures[first:] + measures[:first]:
                    show(f"{asked}: round {number + 1}, {name}")
                    result.values[name].append(measure())
        finally:
            gc.enable()
            show("")
    return result


def ratio(result: Result, name: str) -> float:
    """The median over rounds of case / limit."""
    limit = result.values[result.question.cases[0].name]
    return median(value / bare for value, bare in zip(result.values[name], limit, strict=True))


def show(text: str) -> None:
    """Progress within a question, on a terminal only: a log has its first line."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
