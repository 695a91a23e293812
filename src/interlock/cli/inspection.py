"""`ls` and `inspect`: who holds what, and who waits for it, now."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from interlock.cli import formatting, json_output, table, target_store
from interlock.cli.output import Output
from interlock.cli.table import Cell
from interlock.model import Queue, Standing

HEADING: tuple[Cell, ...] = ("RESOURCE", "KIND", "STATE", "HOLDER", "TOKEN", "QUEUE")
STATE, HOLDER, TOKEN, QUEUE = range(2, 6)
SHORTENED_FIRST = (TOKEN, QUEUE, STATE)  # a whole token is for programs, and `inspect` shows it
COLOURS = {"held": "green", "waiting": "yellow", "free": "yellow"}


def ls(options: Namespace, output: Output) -> int:
    """One line for each resource that is held or waited for."""
    with target_store.open_existing(options.url) as client:
        queues = [client.inspect(name) for name in client.scan(options.prefix)]
    queues = [queue for queue in queues if queue.standings]  # some may have become idle since the scan
    if output.json:
        output.document([json_output.of_queue(queue) for queue in queues])
        return 0
    rows = [row(queue) for queue in queues]
    if not rows:
        _say_that_there_is_nothing(options, output)
    elif output.terminal:  # for people: a program that reads a pipe would take it for a resource
        rows = [HEADING, *rows]
    show(rows, output, state=STATE, width=output.width, first=SHORTENED_FIRST)
    return 0


def _say_that_there_is_nothing(options: Namespace, output: Output) -> None:
    """Tell a person in which store there is nothing: most who expect something look into another one."""
    what = f"nothing that begins with {formatting.printable(options.prefix)}" if options.prefix else "nothing"
    text = f"{what} is held or waited for in {target_store.name(options.url)}"
    if target_store.is_default(options.url):
        text += f"; {target_store.whose()}"
    if output.terminal:
        output.line(text)
    else:  # `| grep`: the pipe stays empty
        output.say(text)


def row(queue: Queue) -> tuple[Cell, ...]:
    """One resource in one line: its first holder, or, if there is none, who waits first."""
    first, waiting = queue.standings[0], len(queue.waiters)
    more = len(queue.holders) - 1
    return (
        formatting.printable(queue.resource),
        formatting.kind(queue),
        formatting.state_shortened(first),
        _and_more(formatting.holder_shortened(first), more)
        if more > 0
        else formatting.holder_shortened(first),
        formatting.token_shortened(first),
        (f"{waiting} waiting", str(waiting)) if waiting else "",
    )


def _and_more(forms: tuple[str, ...], more: int) -> tuple[str, ...]:
    return (f"{forms[0]} and {more} more", *(f"{form} +{more}" for form in forms))


def inspect(options: Namespace, output: Output) -> int:
    """One line for each claim on one resource, in queue order. Never cut: an id must be fit to be copied."""
    with target_store.open_existing(options.url) as client:
        queue = client.inspect(options.name)
    if output.json:
        output.document(json_output.of_queue(queue))
        return 0
    name = formatting.printable(queue.resource)
    if not queue.standings:
        store = f" in {target_store.name(options.url)}" if output.terminal else ""
        output.line(f"{name}: idle; nobody holds it or waits for it{store}")
        return 0
    output.line(f"{output.paint(name, 'bold')} ({formatting.kind(queue)})")
    rows = [_claim(standing, queue.capacity) for standing in queue.standings]
    filled = [index for index, cells in enumerate(zip(*rows, strict=True)) if any(cells)]
    show([[row[index] for index in filled] for row in rows], output, state=0, indent="  ")
    return 0


def _claim(standing: Standing, capacity: int) -> tuple[str, ...]:
    return (
        formatting.state(standing),
        formatting.permits(standing, capacity),
        formatting.holder(standing),
        f"token {standing.token}" if standing.token else "",
        "" if standing.lingering else formatting.lapse(standing),
        "" if standing.foreign else f"id {formatting.printable(standing.id)}",
        formatting.printable(standing.note),
    )


def show(
    rows: Sequence[Sequence[Cell]],
    output: Output,
    *,
    state: int,
    width: int | None = None,
    indent: str = "",
    first: Sequence[int] = (),
) -> None:
    """Print rows in aligned columns; the column `state` is coloured by what it says."""
    for cells in table.lines(rows, width, first):
        cells[state] = output.paint(cells[state], COLOURS.get(cells[state].split()[0], "bold"))
        output.line((indent + table.GAP.join(cells)).rstrip())
