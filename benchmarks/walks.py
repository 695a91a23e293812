"""How far a request walks through the source: calls, files, and changes of file between one call and the next.

    python -m benchmarks.walks sqlite:////tmp/walk.db
    python -m benchmarks.walks redis://127.0.0.1 --trace
    python -m benchmarks.walks redlock://127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003
    python -m benchmarks.walks etcd://127.0.0.1 --loss

Fewer are easier to read, and faster. On SQLite the walk is make, enter and exit (sync); on a server with wake-ups it is a
contended `async with`, and the release that lets it in, by another client of the same loop; on Redlock it is a renewal.
With --loss it is the way from an operator's eviction to the end of the `async with` that it ends, on all threads of the holder.
It uses the public API alone, so `PYTHONPATH=…/src` counts an older commit beside this one.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from types import FrameType

import interlock

PACKAGE = str(Path(interlock.__file__).parent) + "/"

Calls = list[tuple[str, str]]


@contextmanager
def traced(calls: Calls) -> Iterator[None]:
    """Note the file and name of each call into the package by this thread."""

    def note(frame: FrameType, event: str, argument: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(PACKAGE):
            calls.append((path.removeprefix(PACKAGE), frame.f_code.co_name))

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def pair(url: str) -> Calls:
    """The shortest of many: the first ones open the file, and some check it or sweep it."""
    walks: list[Calls] = []
    with interlock.connect(url) as client:
        for _ in range(100):
            calls: Calls = []
            with traced(calls), client.lock("walk"):
                pass
            walks.append(calls)
    return min(walks, key=len)


async def contended(url: str) -> Calls:
    calls: Calls = []

    async def enter(lock: interlock.aio.Lock) -> None:
        async with lock:
            pass

    async with interlock.aio.connect(url) as ours, interlock.aio.connect(url) as theirs:
        for _ in range(4):  # the first ones connect and subscribe
            calls.clear()
            first, lock = await theirs.lock("walk").acquire(), ours.lock("walk")
            assert first
            with traced(calls):
                waiter = asyncio.create_task(enter(lock))
                await asyncio.sleep(0.3)  # by then it waits, and has not yet said for whom
                await first.release()
                await waiter
    return calls


def renewal(url: str) -> Calls:
    calls: Calls = []
    with interlock.connect(url) as client, client.lock("walk", ttl=60) as lease:
        for _ in range(3):
            calls.clear()
            with traced(calls):
                lease.renew()
    return calls


async def loss(url: str) -> Calls:
    """The first thread's calls follow those of the keeper and of the transport as they happen."""
    calls: Calls = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(PACKAGE):
            calls.append((path.removeprefix(PACKAGE), frame.f_code.co_name))

    threading.setprofile(note)  # the threads of the client begin with its first lock
    try:
        async with interlock.aio.connect(url, ttl=3) as ours:
            with suppress(interlock.LeaseLost):
                async with ours.lock("walk"):
                    await asyncio.to_thread(evict, url)
                    calls.clear()
                    sys.setprofile(note)
                    await asyncio.sleep(60)
            sys.setprofile(None)
    finally:
        threading.setprofile(None)
        sys.setprofile(None)
    return calls


def evict(url: str) -> None:
    sys.setprofile(None)
    subprocess.run(
        [sys.executable, "-m", "interlock", "evict", "--url", url, "walk", "--reason", "walk"], check=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.walks", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("url", help="of a store that nobody else uses")
    parser.add_argument("--loss", action="store_true", help="an eviction, until its holder has left its body")
    parser.add_argument("--trace", action="store_true", help="print every call")
    options = parser.parse_args()
    scheme = options.url.partition(":")[0]
    if options.loss:
        calls = asyncio.run(loss(options.url))
    elif scheme == "sqlite":
        calls = pair(options.url)
    elif scheme == "redlock":
        calls = renewal(options.url)
    else:
        calls = asyncio.run(contended(options.url))
    if options.trace:
        before = ""
        for file, name in calls:
            sys.stdout.write(f"{file if file != before else '':45} {name}\n")
            before = file
    changes = sum(one[0] != other[0] for one, other in pairwise(calls))
    files = len({file for file, _ in calls})
    sys.stdout.write(f"{len(calls)} calls over {files} files, {changes} changes of file\n")


if __name__ == "__main__":
    main()
