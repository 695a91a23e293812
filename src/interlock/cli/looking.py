"""`ls` and `inspect`: who holds what, and who waits for it, now."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from interlock.blocking import connect
from interlock.cli import document, table, words
from interlock.cli.outlet import Outlet
from interlock.model import Queue, Standing

HEADING = ("RESOURCE", "KIND", "STATE", "HOLDER", "TOKEN", "QUEUE")
COLOURS = {"held": "green", "waiting": "yellow"}


def ls(options: Namespace, outlet: Outlet) -> int:
    """One line for each resource that is held or waited for."""
    with connect(options.url) as client:
        queues = [client.inspect(name) for name in client.scan(options.prefix)]
    queues = [queue for queue in queues if queue.standings]  # some may have become idle since the scan
    if outlet.json:
        outlet.document([document.of_queue(queue) for queue in queues])
        return 0
    rows = [_row(queue) for queue in queues]
    if outlet.terminal:  # for people: a program that reads a pipe would take them for a resource
        rows = [HEADING, *rows] if rows else []
        if not rows:
            outlet.line("nothing is held or waited for")
    show(rows, outlet, state=2, width=outlet.width)
    return 0


def _row(queue: Queue) -> tuple[str, ...]:
    first = queue.standings[0]  # a holder, if there is one
    more = f" and {len(queue.holders) - 1} more" if len(queue.holders) > 1 else ""
    return (
        words.printable(queue.resource),
        words.kind(queue),
        words.state(first),
        words.who(first) + more,
        str(first.token),
        f"{len(queue.waiters)} waiting" if queue.waiters else "",
    )


def inspect(options: Namespace, outlet: Outlet) -> int:
    """One line for each claim on one resource, in queue order. Never cut: an id must be fit to be copied."""
    with connect(options.url) as client:
        queue = client.inspect(options.name)
    if outlet.json:
        outlet.document(document.of_queue(queue))
        return 0
    name = words.printable(queue.resource)
    if not queue.standings:
        outlet.line(f"{name}: idle; nobody holds it or waits for it")
        return 0
    outlet.line(f"{outlet.paint(name, 'bold')} ({words.kind(queue)})")
    show([_claim(standing, queue.capacity) for standing in queue.standings], outlet, state=0, indent="  ")
    return 0


def _claim(standing: Standing, capacity: int) -> tuple[str, ...]:
    return (
        words.state(standing),
        words.permits(standing, capacity),
        words.who(standing),
        f"token {standing.token}",
        f"lapses in {words.age(standing.lapses_in)}",
        f"id {words.printable(standing.id)}",
        words.printable(standing.note),
    )


def show(
    rows: Sequence[Sequence[str]], outlet: Outlet, *, state: int, width: int | None = None, indent: str = ""
) -> None:
    """Print rows in aligned columns; the column `state` is coloured by what it says."""
    for cells in table.lines(rows, width):
        cells[state] = outlet.paint(cells[state], COLOURS.get(cells[state].split()[0], "bold"))
        outlet.line((indent + table.GAP.join(cells)).rstrip())
