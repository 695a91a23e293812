"""A process of its own that does what the test tells it, a line of JSON each way.

    with Contender(path) as other:
        other.ask("acquire", "name", ttl=2)      # -> {"token": 17..., "at": 5123.4}
        other.process.send_signal(SIGKILL)

Times are the boot clock's, which is the same in every process.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import interlock
from tests.patience import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(interlock.__file__).resolve().parents[1]  # the one under test: a mutant is a copy elsewhere


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def surroundings() -> dict[str, str]:
    """The environment for a process that runs the source under test."""
    return {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{ROOT}"}


class Contender:
    """The test's end."""

    def __init__(self, path: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.sqlite.contender", path],
            cwd=ROOT,
            env={**surroundings(), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(json.loads(line))

    def tell(self, order: str, *args: Any, **options: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([order, args, options]) + "\n")
        self.process.stdin.flush()

    def hear(self, within: float = PATIENCE) -> dict[str, Any]:
        """The next thing it says."""
        return self._lines.get(timeout=within)

    def silent(self) -> bool:
        return self._lines.empty()

    def ask(self, order: str, *args: Any, **options: Any) -> dict[str, Any]:
        self.tell(order, *args, **options)
        return self.hear()

    def __enter__(self) -> Contender:
        assert self.hear()["ready"]
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass  # it was killed with an order in the pipe


# ---- the other end ------------------------------------------------------------------


def say(**fact: Any) -> None:
    sys.stdout.write(json.dumps(fact) + "\n")  # one write: threads must not mix their lines
    sys.stdout.flush()


def interlock_at(path: str) -> Any:
    """A client, as soon as one can be had."""
    while True:
        try:
            return interlock.connect(f"sqlite:///{path}")
        except interlock.StoreUnavailable:
            continue


class Orders:
    """What a contender can be told to do."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.client = interlock_at(path)
        self.leases: dict[str, Any] = {}

    def acquire(self, name: str, timeout: float = PATIENCE, **options: Any) -> None:
        lease = self.client.lock(name, **options).acquire(timeout=timeout)
        self.leases[name] = lease
        say(token=lease.token if lease else None, at=now())

    def acquire_permits(self, name: str, permits: int, capacity: int, **options: Any) -> None:
        lock = self.client.semaphore(name, capacity, **options)
        self.leases[name] = lease = lock.acquire(permits=permits)
        say(token=lease.token)

    def release(self, name: str) -> None:
        lease = self.leases.pop(name)
        at = now()
        try:
            lease.release()
        except RuntimeError as error:
            say(at=at, lost=type(error).__name__)
        else:
            say(at=at, lost=None)

    def check(self, name: str) -> None:
        say(state=self.leases[name].state.value)

    def wait_in_line(self, name: str, threads: int, hold: float = 0.0, **options: Any) -> None:
        """Start threads that queue for a lock; each says when it was in, and gives it back."""

        def turn() -> None:
            lock = self.client.lock(name, **options)
            lease = lock.acquire(timeout=PATIENCE)
            assert lease
            at = now()
            time.sleep(hold)
            lease.release()
            say(name=name, token=lease.token, at=at)

        for _ in range(threads):
            threading.Thread(target=turn, daemon=True).start()

    def count_up(self, name: str, file: str, times: int) -> None:
        """Add one to the number in a file, again and again, reading and writing apart: the lock must hold."""
        tokens: list[int] = []
        for _ in range(times):
            with self.client.lock(name, ttl=10) as lease:
                number = int(Path(file).read_text())
                tokens.append(lease.token)
                Path(file).write_text(str(number + 1))
        say(tokens=tokens)

    def contend(self, name: str, marker: str, seconds: float) -> None:
        """Hold a lock again and again, coming anew now and then; count the times that somebody else held it too."""
        holds = overlaps = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if holds % 20 == 19:
                    self.client.close()
                    self.client = interlock_at(self.path)
                with self.client.lock(name, ttl=5.0, timeout=2.0):
                    try:
                        os.close(os.open(marker, os.O_CREAT | os.O_EXCL | os.O_RDWR))
                    except FileExistsError:
                        overlaps += 1
                        continue
                    time.sleep(0.001)
                    os.unlink(marker)
                    holds += 1
            except interlock.InterlockError as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
                holds += 1  # so that it does not come anew for ever
                if self.client._core.closed:
                    self.client = interlock_at(self.path)
        say(holds=holds, overlaps=overlaps)

    def churn(self, name: str) -> None:
        """Take and give back, alone and against others, until killed."""
        while True:
            with self.client.lock(f"{name}-{os.getpid()}"), self.client.lock(name, ttl=1.0):
                pass

    def fork_away(self) -> None:
        """Go on as a child of this process, which ends."""
        if os.fork():
            os._exit(0)
        say(forked=True)

    def fork_and_sleep(self) -> None:
        """Have a child that does nothing, and outlives this process."""
        child = os.fork()
        if not child:
            time.sleep(600)
            os._exit(0)
        say(child=child)

    def start_sleep(self) -> None:
        """Start another program, which outlives this process."""
        say(child=subprocess.Popen(["sleep", "600"], close_fds=False).pid)

    def fork_and_release(self, name: str) -> None:
        """Have a child try to give back what this process holds."""
        child = os.fork()
        if not child:
            try:
                self.leases[name].release()
            except RuntimeError:
                os._exit(3)
            finally:
                os._exit(0)
        say(refused=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3)

    def fork_and_acquire(self, name: str, children: int) -> None:
        """Have children take a lock in turn, each through the client it inherited."""
        pids: list[int] = []
        for _ in range(children):
            pid = os.fork()
            if not pid:
                with self.client.lock(name, timeout=PATIENCE):
                    pass
                os._exit(0)
            pids.append(pid)
        say(codes=[os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids])

    def close(self) -> None:
        self.client.close()
        say(closed=True)

    def close_and_connect(self) -> None:
        """Come anew, while the client that was closed is still referred to."""
        self.client.close()
        self.closed, self.client = self.client, interlock_at(self.path)
        say(connected=True)

    def event_wait(self, name: str) -> None:
        say(set=self.client.event(name).wait(PATIENCE), at=now())

    def event_set(self, name: str) -> None:
        at = now()
        self.client.event(name).set()
        say(at=at)

    def condition_wait(self, name: str) -> None:
        condition = self.client.condition(name)
        with condition:
            say(waiting=True)
            woken = condition.wait(PATIENCE)
            at = now()
        say(woken=woken, at=at)

    def notify(self, name: str) -> None:
        condition = self.client.condition(name)
        with condition:
            condition.notify()
            at = now()
        say(at=at)


def main(path: str) -> None:
    orders = Orders(path)
    say(ready=True)
    for line in sys.stdin:
        order, args, options = json.loads(line)
        do: Callable[..., None] = getattr(orders, order)
        do(*args, **options)


if __name__ == "__main__":
    main(sys.argv[1])
