"""Question C: one lock and many who want it. Hand-offs a second, how fair they are, what they cost the server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import pairwise

from benchmarks import pace
from benchmarks.contenders import APART
from benchmarks.process import in_another
from benchmarks.question import Case, Figure, Measure, Question, when
from benchmarks.redis_server import Bare, busy, calls, served

SECONDS = 0.6  # a window in which hand-offs are counted
PROGRAM = "import sys; from benchmarks.contenders import serve; serve(*sys.argv[1:])"

# Which of the server's commands only clients send, for each kind: what its scripts call inside is not a request.
REQUESTS = {
    "pushed": ("evalsha", "eval"),
    "interlock": ("evalsha", "eval"),
    "interlock-threads": ("evalsha", "eval"),
    "redis-py": ("evalsha", "set"),
    "redis-lock": ("evalsha", "set", "blpop"),
}


def questions() -> list[Question]:
    return [
        *(_across(waiters, processes) for waiters, processes in ((2, 2), (8, 8), (128, 8))),
        *(_within(contenders) for contenders in (8, 64)),
    ]


def _within(contenders: int) -> Question:
    return Question(
        f"redis-contended-local-{contenders}",
        f"C: one lock on Redis, {contenders} contenders in one process, for one hand-off",
        [
            Case("ownership moved, PUBLISH", _contended("pushed", contenders, 1)),
            Case("interlock", _contended("interlock", contenders, 1)),
            Case("interlock, threads", _contended("interlock-threads", contenders, 1)),
        ],
        goal=round(1e6 / 15_000, 1),
        absolute=True,
        rounds=7,
    )


def _across(contenders: int, processes: int) -> Question:
    peers = [
        *when("redis_lock", Case("python-redis-lock", _contended("redis-lock", contenders, processes))),
        Case("redis-py Lock", _contended("redis-py", contenders, processes)),
    ]
    return Question(
        f"redis-contended-{contenders}",
        f"C: one lock on Redis, {contenders} contenders in {processes} processes, for one hand-off",
        [
            Case("ownership moved, PUBLISH", _contended("pushed", contenders, processes)),
            Case("interlock", _contended("interlock", contenders, processes)),
            Case("interlock, threads", _contended("interlock-threads", contenders, processes)),
            *(peers if contenders <= 16 else peers[:-1]),  # who polls among 128 starves
        ],
        goal=round(1 / 0.7, 2),
        rounds=7,
        note="a hand-off is a change of owner: who takes again what it just gave back hands nothing over",
    )


def _contended(kind: str, contenders: int, processes: int) -> Callable[[], AbstractContextManager[Measure]]:
    @contextmanager
    def open() -> Iterator[Measure]:
        with served() as server, ExitStack() as stack:
            bare = Bare(server.port)
            stack.callback(bare.close)
            shape = (str(processes), str(contenders // processes))
            others = [
                stack.enter_context(in_another(PROGRAM, kind, str(server.port), str(number), *shape))
                for number in range(processes)
            ]

            def measure() -> Figure:
                begin = time.monotonic() + 0.01
                counted = begin + contenders * APART + 0.1
                end = counted + pace.seconds(SECONDS)
                before, spent = calls(bare), busy(bare)
                for other in others:
                    other.tell(json.dumps([begin, end]))
                told: list[list[list[float]]] = [json.loads(other.hear()) for other in others]
                after, spent = calls(bare), busy(bare) - spent
                asked = sum(after.get(name, 0) - before.get(name, 0) for name in REQUESTS[kind])
                return figure(told, asked, spent, counted, end)

            yield measure

    return open


def figure(told: list[list[list[float]]], asked: int, spent: float, begin: float, end: float) -> Figure:
    """Seconds for one hand-off, from the instants each contender of each process had the lock."""
    history = sorted(
        (instant, process, contender)
        for process, contenders in enumerate(told)
        for contender, instants in enumerate(contenders)
        for instant in instants
    )
    within = [who for instant, *who in history if begin <= instant < end]
    moved = [(old, new) for old, new in pairwise(within) if old != new]
    counts = [sum(begin <= i < end for i in instants) for contenders in told for instants in contenders]
    return Figure(
        (end - begin) / max(1, len(moved)),
        hand_offs_a_second=len(moved) / (end - begin),
        Jain=jain(counts),
        requests_a_grant=asked / max(1, len(history)),
        µs_of_the_server=1e6 * spent / max(1, len(history)),
        between_processes=sum(old[0] != new[0] for old, new in moved) / max(1, len(moved)),
    )


def jain(counts: list[int]) -> float:
    """1 when all had the lock equally often, 1/n when one had it alone."""
    squares = len(counts) * sum(count * count for count in counts)
    return sum(counts) ** 2 / squares if squares else 0.0
