"""One picture of the demo, from what the store and the ledger say: 80 columns, 23 rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TypeAlias

from interlock.lab.demo.ledger import Write
from interlock.lab.demo.pace import Pace
from interlock.lab.demo.report import CAPACITY
from interlock.model import Queue, Standing

WIDTH = 79
ROWS_OF_QUEUES = 10
ROWS_OF_NEWS = 4
ROWS_OF_TEXT = 3

Span: TypeAlias = tuple[str, str]  # style, text
Line: TypeAlias = list[Span]


@dataclass(frozen=True, slots=True)
class Sleeper:
    """A worker that was paused, its lease lapsed meanwhile, and it does not know."""

    worker: str
    token: int


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything a picture shows."""

    act: str
    text: str  # what is going on
    elapsed: float
    pace: Pace
    lock: Queue
    semaphore: Queue
    fates: dict[str, str]  # what was done to a worker: killed, paused
    sleeper: Sleeper | None
    balance: int
    highest: int
    news: Sequence[Write]


def picture(scene: Scene) -> list[Line]:
    """The scene, line by line; always the same number of lines."""
    queues = [
        *_queue(scene, scene.lock, f"lock 'ledger'         one holder at a time, ttl {scene.pace.ttl:g} s"),
        [],
        *_queue(scene, scene.semaphore, f"semaphore 'printers'  {CAPACITY} holders at a time"),
    ]
    account = f"the ledger            balance {scene.balance:>3}   highest token accepted {scene.highest}"
    return [
        [("bold", f" interlock demo   {scene.act:<50}"), ("dim", f"{scene.elapsed:>9.1f} s")],
        _rule(),
        *_exactly(ROWS_OF_QUEUES, queues),
        _rule(),
        [("bold", f" {account}")],
        *_exactly(ROWS_OF_NEWS, _news(scene.news)),
        _rule(),
        *_exactly(ROWS_OF_TEXT, [[("", f" {line}")] for line in wrap(scene.text, WIDTH - 2)]),
    ]


def _rule() -> Line:
    return [("dim", "─" * WIDTH)]


def _exactly(rows: int, lines: list[Line]) -> list[Line]:
    return [*lines[:rows], *([] for _ in range(rows - len(lines)))]


def _queue(scene: Scene, queue: Queue, title: str) -> list[Line]:
    lines: list[Line] = [[("bold", f" {title}")]]
    lines += [_holder(scene, standing) for standing in queue.holders]
    if not queue.holders:
        lines.append([("dim", "   free")])
    if scene.sleeper is not None and queue is scene.lock:
        lines += _believer(scene.sleeper, queue)
    for place, standing in enumerate(queue.waiters, 1):
        lines.append([("dim", f"   waits {place}  "), *_who(scene, standing)])
    return lines


def _holder(scene: Scene, standing: Standing) -> Line:
    left = min(1.0, max(0.0, standing.lapses_in / scene.pace.ttl))
    full = round(left * 10)
    return [
        ("good", "   holds    "),
        *_who(scene, standing),
        ("", "  "),
        ("good" if left > 0.5 else "warn", "█" * full + "░" * (10 - full)),
        ("dim", f" {max(0.0, standing.lapses_in):.1f} s left"),
    ]


def _believer(sleeper: Sleeper, queue: Queue) -> list[Line]:
    """The sleeper, from the moment its lease has lapsed."""
    if any(standing.token == sleeper.token for standing in queue.standings):
        return []
    who = f"{sleeper.worker:<9} {'PAUSED':<11} token {sleeper.token}"
    return [[("bad", f"   believes {who}  lapsed; does not know")]]


def _who(scene: Scene, standing: Standing) -> Line:
    who = standing.caller
    fate = scene.fates.get(who.thread, "")
    place = ("bad", f" {fate.upper():<11} ") if fate else ("dim", f" pid {who.pid:<7} ")
    return [("name", f"{who.thread:<9}"), place, ("", f"token {standing.token}")]


def _news(writes: Sequence[Write]) -> list[Line]:
    """The latest writes; a refusal stays, however many follow it."""
    refused = [write for write in writes if not write.accepted][-1:]
    accepted = [write for write in writes if write.accepted][len(refused) - ROWS_OF_NEWS :]
    return [_write(write) for write in sorted([*refused, *accepted], key=lambda write: write.seq)]


def _write(write: Write) -> Line:
    asks = f"   {write.worker:<9} {write.was:>3} -> {write.becomes:<3} with token {write.token}  "
    if write.accepted:
        return [("", asks), ("good", "accepted")]
    return [("", asks), ("bad", "REFUSED, stale token")]
