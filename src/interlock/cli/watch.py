"""`watch`: a line for each change of who holds and who waits."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Iterator

from interlock._support import clock
from interlock.blocking import Client
from interlock.cli import formatting, json_output, target_store
from interlock.cli.output import Output
from interlock.errors import StoreUnavailable
from interlock.model import Queue, Standing

# No store can say which of all its resources has changed.
POLL_PERIOD_S = 0.5
# The pause is so many times as long as the poll, so that a large store can do other things.
PAUSE_PER_POLL = 5
# After it, a store that did not answer is asked again.
RETRY_PAUSE_S = 1.0
COLOURS = {"holds": "green", "waits": "yellow", "left": "dim", "says": "bold", "lingers": "yellow"}


def watch(options: Namespace, output: Output) -> int:
    """Follow one resource, or all; Ctrl-C is how it ends, so that is no failure."""
    try:
        with target_store.await_existing(options.url, output) as client:
            seen: dict[str, Queue] = {}
            poll = (lambda: everything(client, seen)) if options.name is None else one(client, options.name)
            follow(persistent(poll, output), output)
    except KeyboardInterrupt:
        pass
    return 0


def one(client: Client, name: str) -> Callable[[], Iterator[Queue]]:
    return lambda: client.watch(name)


def everything(client: Client, seen: dict[str, Queue]) -> Iterator[Queue | None]:
    """Yield the queue of each resource that stands, and again whenever it is found changed; None after
    each look.
    """
    while True:
        began = clock.now()
        names = set(client.scan())
        for name in sorted(names | set(seen)):
            queue = client.inspect(name)
            if any(differences(seen.get(name), queue)):
                yield queue
            if queue.standings:
                seen[name] = queue
            else:
                seen.pop(name, None)
        yield None
        time.sleep(max(POLL_PERIOD_S, (clock.now() - began) * PAUSE_PER_POLL))


def persistent(
    poll: Callable[[], Iterator[Queue | None]] | Callable[[], Iterator[Queue]], output: Output
) -> Iterator[Queue]:
    """Yield what `poll` finds, and poll again when the store does not answer; it must have answered once."""
    answered = silent = False
    while True:
        try:
            for queue in poll():
                if silent:
                    output.warn("the store answers again")
                answered, silent = True, False
                if queue is not None:
                    yield queue
        except StoreUnavailable as error:
            if not answered:
                raise  # more likely a mistake in the URL than an outage
            if not silent:
                output.warn(f"{formatting.printable(str(error))}; trying again until it answers")
            silent = True
            time.sleep(RETRY_PAUSE_S)


def follow(queues: Iterator[Queue], output: Output) -> None:
    seen: dict[str, Queue] = {}
    for queue in queues:
        before = seen.get(queue.resource)
        changes = list(differences(before, queue))
        if output.json:
            happened = [{"change": what, **json_output.of_standing(standing)} for what, standing in changes]
            output.document({"at": round(time.time(), 3), **json_output.of_queue(queue), "changes": happened})
        else:
            _show(queue, before, changes, output)
        if queue.standings:
            seen[queue.resource] = queue
        else:
            seen.pop(queue.resource, None)


def differences(before: Queue | None, after: Queue) -> Iterator[tuple[str, Standing]]:
    """Yield the claims that left, then those that were admitted, came to wait, or changed their note.

    A claim that is released and lingers for its `min_hold` leaves, and `lingers` in the way of the others.
    """
    old = {standing.id: standing for standing in before.standings} if before else {}
    now = {standing.id for standing in after.standings}
    for standing in old.values():
        if standing.id not in now:
            yield "left", standing
    for standing in after.standings:
        was = old.get(standing.id)
        if was is None or was.admitted != standing.admitted:
            yield _arrival(standing), standing
        elif was.note != standing.note or was.permits != standing.permits:
            yield "says", standing


def _arrival(standing: Standing) -> str:
    if standing.lingering:
        return "lingers"
    return "holds" if standing.admitted else "waits"


def _show(queue: Queue, before: Queue | None, changes: list[tuple[str, Standing]], output: Output) -> None:
    moment = output.paint(time.strftime("%H:%M:%S"), "dim")
    name = formatting.printable(queue.resource)
    if before is None and not changes:
        output.line(f"{moment}  {name}  idle")
    for what, standing in changes:
        parts = [moment, name, output.paint(f"{what:<7}", COLOURS[what]), formatting.who(standing)]
        parts += [f"token {standing.token}"] if standing.token else []
        parts += [formatting.state(standing)] if what == "lingers" else []
        weight = formatting.permits(standing, queue.capacity or (before.capacity if before else 1))
        parts += [text for text in (weight, formatting.printable(standing.note)) if text]
        output.line("  ".join(parts))
