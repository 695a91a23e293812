"""`top`: the live picture of a store: holders, queues, time left."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator

from interlock._support import clock
from interlock.blocking import Client
from interlock.cli import exit_codes, formatting, json_output, screen, target_store
from interlock.cli.frame import Snapshot, compose
from interlock.cli.output import Output
from interlock.cli.screen import Screen
from interlock.cli.signals import Interrupted
from interlock.cli.watch import PAUSE_PER_POLL
from interlock.errors import StoreUnavailable
from interlock.model import Queue

# More are neither asked for nor shown.
MAX_CLAIMS_PER_RESOURCE = 50
MAX_RESOURCES = 200
# Columns of a picture that is no terminal's.
PLAIN_WIDTH = 100
# A new size of the terminal is seen at most this much later.
RESIZE_POLL_S = 0.1


def top(options: Namespace, output: Output) -> int:
    """Draw one picture, or one after the other; Ctrl-C is how it ends, so that is no failure."""
    try:
        with _open(options, output) as client:
            snapshots = Snapshots(client, options)
            if options.once or output.json or not output.drawable:
                _print(snapshots, options, output)
            else:
                with Screen(output) as drawn:
                    _draw(snapshots, drawn, output)
    except Interrupted as interrupted:
        return exit_codes.died_of(interrupted.number)
    except KeyboardInterrupt:
        pass
    return 0


def _open(options: Namespace, output: Output) -> Client:
    """The store; a lock file that does not exist is waited for, unless only one picture is wanted."""
    if options.once:
        return target_store.open_existing(options.url)
    return target_store.await_existing(options.url, output)


def _print(snapshots: Snapshots, options: Namespace, output: Output) -> None:
    """Pictures below each other; JSON is one document a line."""
    for snapshot in snapshots:
        if output.json:
            found = [json_output.of_queue(queue) for queue in snapshot.queues]
            output.document({"at": round(time.time(), 3), "store": snapshot.store, "resources": found})
        else:
            # At least the name of the store: a name that is cut cannot be copied.
            width = output.width or max(PLAIN_WIDTH, len(snapshot.store) + PLAIN_WIDTH // 2)
            for line in compose(snapshot, snapshots.full, width, None):
                output.line(screen.text(line, output))
        if options.once:
            return
        if not output.json:
            output.line("")
        time.sleep(snapshots.pause)


def _draw(snapshots: Snapshots, drawn: Screen, output: Output) -> None:
    for snapshot in snapshots:
        until = clock.now() + snapshots.pause
        size = None
        while clock.now() < until:
            if size != output.size:
                size = output.size
                drawn.draw(compose(snapshot, snapshots.full, *size))
            time.sleep(min(RESIZE_POLL_S, max(0.0, until - clock.now())))


class Snapshots:
    """One look at the store after the other; a store that does not answer is looked at again."""

    def __init__(self, client: Client, options: Namespace) -> None:
        self._client = client
        self._prefix = options.prefix
        self._every = options.every
        self._store = target_store.name(options.url)
        self.full: dict[str, float] = {}  # claim id to the longest time it was seen to have left
        self.pause = options.every

    def __iter__(self) -> Iterator[Snapshot]:
        last: Snapshot | None = None
        while True:
            began, trouble = clock.now(), ""
            try:
                last = self._take()
            except StoreUnavailable as error:
                if last is None:
                    raise  # more likely a mistake in the URL than an outage
                trouble = f"as of {last.time}: {formatting.printable(str(error))}"
            self.pause = max(self._every, (clock.now() - began) * PAUSE_PER_POLL)
            yield last._replace(trouble=trouble)

    def _take(self) -> Snapshot:
        names = list(self._client.scan(self._prefix))
        found = [self._client.inspect(name, limit=MAX_CLAIMS_PER_RESOURCE) for name in names[:MAX_RESOURCES]]
        queues = [queue for queue in found if queue.standings]
        self._remember(queues)
        cut_off = frozenset(
            queue.resource for queue in queues if len(queue.standings) >= MAX_CLAIMS_PER_RESOURCE
        )
        count = len(names) - len(found) + len(queues)
        return Snapshot(self._store, time.strftime("%H:%M:%S"), queues, cut_off, count)

    def _remember(self, queues: list[Queue]) -> None:
        now = {standing.id: standing.lapses_in for queue in queues for standing in queue.holders}
        self.full = {id: max(left, self.full.get(id, 0.0)) for id, left in now.items()}
