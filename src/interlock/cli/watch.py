"""`watch`: a line for each change of who holds and who waits."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator

from interlock.blocking import Client, connect
from interlock.cli import document, words
from interlock.cli.outlet import Outlet
from interlock.model import Queue, Standing

LOOK_EVERY = 0.5  # seconds; no store can say which of all its resources has changed
COLOURS = {"holds": "green", "waits": "yellow", "left": "dim", "says": "bold"}


def watch(options: Namespace, outlet: Outlet) -> int:
    """Follow one resource, or all; Ctrl-C is how it ends, so that is no failure."""
    try:
        with connect(options.url) as client:
            if options.name is None:
                follow(everything(client), outlet)
            else:
                follow(client.watch(options.name), outlet)
    except KeyboardInterrupt:
        pass
    return 0


def everything(client: Client) -> Iterator[Queue]:
    """Yield the queue of each resource that stands, and again whenever it is found changed."""
    seen: dict[str, Queue] = {}
    while True:
        names = set(client.scan())
        for name in sorted(names | set(seen)):
            queue = client.inspect(name)
            if _outline(queue) != _outline(seen.get(name)):
                yield queue
            if queue.standings:
                seen[name] = queue
            else:
                seen.pop(name, None)
        time.sleep(LOOK_EVERY)


def follow(queues: Iterator[Queue], outlet: Outlet) -> None:
    seen: dict[str, Queue] = {}
    for queue in queues:
        before = seen.get(queue.resource)
        changes = list(differences(before, queue))
        if outlet.json:
            happened = [{"change": what, **document.of_standing(standing)} for what, standing in changes]
            outlet.document({"at": round(time.time(), 3), **document.of_queue(queue), "changes": happened})
        else:
            _show(queue, before, changes, outlet)
        if queue.standings:
            seen[queue.resource] = queue
        else:
            seen.pop(queue.resource, None)


def differences(before: Queue | None, after: Queue) -> Iterator[tuple[str, Standing]]:
    """Who left, who holds, who waits, who says something else than before; in that order of reading."""
    old = {standing.id: standing for standing in before.standings} if before else {}
    now = {standing.id for standing in after.standings}
    for standing in old.values():
        if standing.id not in now:
            yield "left", standing
    for standing in after.standings:
        was = old.get(standing.id)
        if was is None or was.admitted != standing.admitted:
            yield "holds" if standing.admitted else "waits", standing
        elif was.note != standing.note or was.permits != standing.permits:
            yield "says", standing


def _show(queue: Queue, before: Queue | None, changes: list[tuple[str, Standing]], outlet: Outlet) -> None:
    moment = outlet.paint(time.strftime("%H:%M:%S"), "dim")
    name = words.printable(queue.resource)
    if before is None and not changes:
        outlet.line(f"{moment}  {name}  idle")
    for what, standing in changes:
        parts = [moment, name, outlet.paint(f"{what:<5}", COLOURS[what]), words.who(standing)]
        parts.append(f"token {standing.token}")
        weight = words.permits(standing, queue.capacity or (before.capacity if before else 1))
        parts += [text for text in (weight, words.printable(standing.note)) if text]
        outlet.line("  ".join(parts))


def _outline(queue: Queue | None) -> list[tuple[str, int, bool, str]]:
    """What counts as a difference: who stands where, not how long they will live."""
    return [(s.id, s.permits, s.admitted, s.note) for s in queue.standings] if queue else []
