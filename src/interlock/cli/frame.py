"""One frame of `top`: the holders, the waiters, and how long each lease still lives. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from interlock.cli import formatting, table
from interlock.cli.table import GAP
from interlock.model import EVERYTHING, NEVER, Queue, Standing

Span: TypeAlias = tuple[str, str]  # style ("" for plain), text
Line: TypeAlias = list[Span]

MAX_COLUMNS = 110  # columns: beyond that the eye loses the line
BAR_COLUMNS = 10  # columns
ROLE_COLUMNS = 7  # columns of `holds`, `next`, and of a place in the queue
AGE_COLUMNS = 8
LEFT_COLUMNS = 8
TOKEN_COLUMNS = 8
# Columns left for the caller, a short host and a pid; other columns are dropped before this one gets
# narrower.
WHO_COLUMNS = 14
MAX_WAITERS_SHOWN = (10, 5, 3, 1, 0)  # how many of a queue are shown: as many as leave room for all resources
MAX_HOLDERS_SHOWN = 5
PLAIN = str.maketrans("─█░…", "-#.~")


class Snapshot(NamedTuple):
    """The queues of a store at one moment."""

    store: str
    time: str  # of day
    queues: Sequence[Queue]
    cut_off: frozenset[str] = frozenset()  # resources with more claims than were asked for
    names: int = 0  # resources there are; those beyond `queues` were not asked for
    trouble: str = ""  # why it is older than it should be


def compose(snapshot: Snapshot, full: Mapping[str, float], width: int, height: int | None) -> list[Line]:
    """The lines of one frame, none wider than `width`, no more than `height`.

    `full` has for each claim the longest time it was ever seen to have left: the length of its bar when it is
    full.
    """
    head = _head(snapshot, width)
    screen, width = width, min(width, MAX_COLUMNS)
    room = None if height is None else max(1, height - len(head))
    body: list[Line] = []
    blocks: list[list[Line]] = []
    for most in MAX_WAITERS_SHOWN:
        blocks = [_resource(snapshot, queue, full, width, most) for queue in snapshot.queues]
        body = [line for block in blocks for line in block]
        missing = snapshot.names - len(snapshot.queues)
        if missing > 0:
            body.append(_more_resources(missing))
        if room is None or len(body) <= room:
            break
    else:
        body = _whole_blocks(blocks, room or 1, max(snapshot.names, len(blocks)))
    return [_cut(line, screen) for line in [*head, *body]]


def _head(snapshot: Snapshot, width: int) -> list[Line]:
    title = "interlock top"
    store = table.cut(snapshot.store, max(8, width - len(title) - len(snapshot.time) - 2 * len(GAP)))
    gap = " " * max(
        len(GAP), min(width, MAX_COLUMNS) - len(title) - len(GAP) - table.columns(store) - len(snapshot.time)
    )
    lines: list[Line] = [[("bold", title), ("", GAP), ("", store), ("", gap), ("dim", snapshot.time)]]
    lines.append([("red", snapshot.trouble)] if snapshot.trouble else [("dim", _count(snapshot))])
    columns: list[tuple[int, Line]] = [
        (AGE_COLUMNS, [("dim", f"{'FOR':>{AGE_COLUMNS}}")]),
        (BAR_COLUMNS + 1 + LEFT_COLUMNS, [("dim", f"{'TIME LEFT':<{BAR_COLUMNS + 1 + LEFT_COLUMNS}}")]),
        (TOKEN_COLUMNS, [("dim", f"{'TOKEN':<{TOKEN_COLUMNS}}")]),
    ]
    lines.append(_row(("", ""), ("WHO",), columns, min(width, MAX_COLUMNS)) if snapshot.queues else [])
    return lines


def _count(snapshot: Snapshot) -> str:
    if not snapshot.queues:
        return "nothing is held or waited for"
    names = max(snapshot.names, len(snapshot.queues))
    held = sum(not standing.lingering for queue in snapshot.queues for standing in queue.holders)
    waiting = sum(len(queue.waiters) for queue in snapshot.queues)
    more = "+" if snapshot.cut_off or names > len(snapshot.queues) else ""
    return f"{names} resource{'s' if names > 1 else ''}, {held}{more} held, {waiting}{more} waiting"


def _more_resources(count: int) -> Line:
    return [("dim", f"and {count} more resource{'s' if count > 1 else ''}")]


def _whole_blocks(blocks: Sequence[list[Line]], room: int, names: int) -> list[Line]:
    """As many resources as fit with all their lines, and how many do not."""
    shown: list[Line] = []
    for number, block in enumerate(blocks):
        if len(shown) + len(block) > room - 1:
            return [*(shown or block[: room - 1]), _more_resources(names - max(1, number))]
        shown += block
    return [*shown, _more_resources(names - len(blocks))]


# ---- one resource -------------------------------------------------------------------


def _resource(
    snapshot: Snapshot, queue: Queue, full: Mapping[str, float], width: int, most: int
) -> list[Line]:
    kind = formatting.kind(queue)
    name = table.cut(formatting.printable(queue.resource), max(8, width - len(GAP) - len(kind)))
    lines: list[Line] = [[("bold", name), ("", GAP), ("dim", kind)]]
    holders, waiters = queue.holders, queue.waiters
    for standing in holders[:MAX_HOLDERS_SHOWN]:
        lines.append(_holder(standing, queue.capacity, full.get(standing.id, 0.0), width))
    if (more := len(holders) - MAX_HOLDERS_SHOWN) > 0:
        lines.append(_note(f"and {more} more hold it" if more > 1 else "and 1 more holds it"))
    for place, standing in enumerate(waiters[:most], 1):
        lines.append(_waiter(standing, queue.capacity, place, width))
    more = len(waiters) - most
    if queue.resource in snapshot.cut_off:
        lines.append(_note(f"and more than {more} more wait" if more > 0 else "and more wait"))
    elif more > 0:
        wait = "waits" if more == 1 else "wait"
        lines.append(_note(f"and {more} more {wait}" if most else f"{more} {wait}"))
    return lines


def _note(text: str) -> Line:
    return [("dim", f"  {'':<{ROLE_COLUMNS}}{GAP}{text}")]


def _holder(standing: Standing, capacity: int, full: float, width: int) -> Line:
    never = standing.lapses_in == NEVER
    share = 1.0 if never or full <= 0 else min(1.0, max(0.0, standing.lapses_in / full))
    whole = round(share * BAR_COLUMNS)
    colour = "green" if share > 0.5 else "yellow" if share > 0.2 else "red"
    left = "never" if never else _short(standing.lapses_in)
    token = table.fitted(formatting.token_shortened(standing), TOKEN_COLUMNS)
    age = "" if standing.foreign or standing.lingering else _short(standing.age)
    columns: list[tuple[int, Line]] = [
        (AGE_COLUMNS, [("", f"{age:>{AGE_COLUMNS}}")]),
        (
            BAR_COLUMNS + 1 + LEFT_COLUMNS,
            [(colour, "█" * whole), ("dim", "░" * (BAR_COLUMNS - whole)), ("", f" {left:<{LEFT_COLUMNS}}")],
        ),
        (TOKEN_COLUMNS, [("dim", f"{token:<{TOKEN_COLUMNS}}")]),
    ]
    role: Span = ("yellow", "lingers") if standing.lingering else ("green", "holds")
    return _row(role, _who(standing, capacity), columns, width)


def _waiter(standing: Standing, capacity: int, place: int, width: int) -> Line:
    role = ("yellow", "next" if place == 1 else str(place))
    columns: list[tuple[int, Line]] = [(AGE_COLUMNS, [("", f"{_short(standing.age):>{AGE_COLUMNS}}")])]
    rest = len(GAP) + BAR_COLUMNS + 1 + LEFT_COLUMNS + len(GAP) + TOKEN_COLUMNS
    return _row(role, _who(standing, capacity), [*columns, (rest - len(GAP), [])], width)


def _short(seconds: float) -> str:
    """A duration in its larger unit."""
    return " ".join(formatting.age(seconds).split()[:2])


def _who(standing: Standing, capacity: int) -> tuple[str, ...]:
    weight = formatting.permits(standing, capacity) if standing.permits > 1 or capacity == EVERYTHING else ""
    return tuple(f"{form}, {weight}" if weight else form for form in formatting.holder_shortened(standing))


def _row(role: Span, who: tuple[str, ...], columns: list[tuple[int, Line]], width: int) -> Line:
    """Role, who, and as many of the columns as leave room for who; the last ones go first."""
    start = 2 + ROLE_COLUMNS + len(GAP)
    while columns and start + WHO_COLUMNS + sum(len(GAP) + size for size, _ in columns) > width:
        columns = columns[:-1]
    room = max(WHO_COLUMNS, width - start - sum(len(GAP) + size for size, _ in columns))
    shown = table.fitted(who, room)
    line: Line = [("", "  "), (role[0], f"{role[1]:<{ROLE_COLUMNS}}"), ("", GAP), ("", shown)]
    line.append(("", " " * (room - table.columns(shown))))
    for _, spans in columns:
        line += [("", GAP), *spans]
    return line


def _cut(line: Line, width: int) -> Line:
    """The line without what is beyond the width: a wrapped line would spoil the picture."""
    cut: Line = []
    for style, text in line:
        size = table.columns(text)
        cut.append((style, text if size <= width else table.cut(text, width) if width > 0 else ""))
        width -= min(size, width)
    return cut
