"""FIELD: forks, signals, and the end of a process. (9, 20)"""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

from interlock.errors import StoreUnavailable
from interlock.testing.conformance import Suite, got, refused, within
from interlock.testing.lag import at_most, stretched
from tests.field.process import ENVIRONMENT, Process
from tests.field.tap import When, tapped
from tests.patience import PATIENCE


class Ends(Suite):
    """A process that forks or ends leaves the leases of others alone, and its own to others."""

    # ---- 9 ----------------------------------------------------------------------

    async def test_09_a_forked_child_can_neither_release_nor_lose_what_its_parent_holds(self) -> None:
        self.needs(reach=("machine", "network"))
        see = self.client()
        ttl = stretched(0.5)
        with Process(self.face.name, self.place, ttl=ttl) as parent:
            token = parent.tell(
                f"lock = client.lock({self.name!r}); lease = await got(lock.acquire()); lease.token"
            )
            told = parent.tell(FORK)
            assert told == {
                "state": "lost",
                "check": "LeaseLost",
                "release": "LeaseLost",
                "lock.release": "NotHeld",
                "exit": 0,
            }
            await self.runtime.sleep(2.4 * ttl)  # the parent's keeper lives: it is renewed past its ttl
            queue = await self.standing(see, 1, 0)
            assert queue.holders[0].token == token
            parent.tell("lease.check()")
            parent.tell("await got(lease.release())")

    async def test_09_a_forked_child_that_ends_in_good_order_frees_nothing(self) -> None:
        self.needs(reach=("machine", "network"))
        done = subprocess.run(
            [sys.executable, "-c", FORK_AND_EXIT, self.place, self.name],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.stdout.split() == ["child:", "True", "parent:", "held"], done.stderr

    async def test_09_a_child_of_multiprocessing_takes_its_turn_like_anybody_else(self) -> None:
        self.needs(reach=("machine", "network"))
        done = subprocess.run(
            [sys.executable, "-c", WORKERS, self.place, self.name],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.stdout.split() == ["40"], done.stderr

    # ---- 20 ---------------------------------------------------------------------

    async def test_20_sigterm_releases_everything_within_a_bound(self) -> None:
        self.needs(reach=("machine", "network"))
        see = self.client()
        with Process(self.face.name, self.place) as process:
            process.tell("interlock.release_on_signal()")
            for number in range(5):
                process.tell(f"await got(client.lock('{self.name}-{number}').acquire()); None")
            with at_most(6.0):
                assert process.terminate() == -signal.SIGTERM
        for number in range(5):
            await self.standing(see, 0, 0, f"{self.name}-{number}")

    async def test_20_sigterm_releases_everything_soon_also_while_the_program_waits(self) -> None:
        """A wait is not work: containers are killed ten seconds after SIGTERM, whatever the program waits for."""
        self.needs(reach=("machine", "network"))
        see = self.client()
        for waits in ("client.lock(name).acquire()", "client.event(name).wait()"):
            async with within(see.lock(self.name)):
                command = [sys.executable, "-c", WAITS.format(waits=waits), self.place, self.name]
                with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE) as process:
                    assert process.stdout is not None
                    assert process.stdout.readline() == b"ready\n"
                    with at_most(2.0):
                        process.send_signal(signal.SIGTERM)
                        assert process.wait(PATIENCE) == -signal.SIGTERM
                await self.standing(see, 0, 0, f"{self.name}-held")
                await self.standing(see, 1, 0)

    async def test_20_a_program_that_ends_releases_everything(self) -> None:
        self.needs(reach=("machine", "network"))
        see = self.client()
        with Process(self.face.name, self.place) as process:
            process.tell(f"lease = await got(client.lock({self.name!r}).acquire()); None")
            await self.standing(see, 1, 0)
            assert process.end() == 0
        await self.standing(see, 0, 0)

    async def test_20_without_release_on_signal_a_killed_process_blocks_nobody_beyond_its_ttl(self) -> None:
        self.needs(reach=("machine", "network"))
        with Process(self.face.name, self.place, ttl=0.5) as process:
            process.tell(f"lease = await got(client.lock({self.name!r}).acquire()); None")
            with at_most(0.5 + 2.0):
                process.kill()
                async with within(self.client().lock(self.name, timeout=PATIENCE)):
                    pass

    async def test_20_a_release_error_never_masks_the_bodys_exception(self) -> None:
        def spoil(when: When, call: str, args: Any) -> None:
            if (when, call) == ("before", "release") and away:
                raise StoreUnavailable("cut off")

        away = list[int]()
        client = self.client(ttl=self.short, wrap=tapped(spoil))

        async def fail() -> None:
            async with within(client.lock(self.name)):
                away.append(1)
                raise KeyError("mine")

        assert (await refused(KeyError, fail)).args == ("mine",)
        away.clear()

    async def test_20_a_loss_never_masks_the_bodys_exception(self) -> None:
        client = self.client()

        async def fail() -> None:
            async with within(client.lock(self.name)):
                await got(client.evict(self.name, reason="a drill"))
                raise KeyError("mine")

        error = await refused(KeyError, fail)
        assert any("is lost" in note for note in error.__notes__)


WAITS = """
import sys, threading, time, interlock
from interlock.testing.lag import stretched
interlock.release_on_signal()
place, name = sys.argv[1:]
def tell():
    time.sleep(stretched(0.2))  # by then the main thread waits; if not, the signal finds it at work
    print("ready", flush=True)
with interlock.connect(place) as client, client.lock(name + "-held"):
    threading.Thread(target=tell, daemon=True).start()
    {waits}
"""

FORK = """
read, write = os.pipe()
child = os.fork()
if not child:
    import json
    said = {"state": lease.state.value}
    async def try_(name, call):
        try:
            await got(call())
            said[name] = "nothing"
        except BaseException as error:
            said[name] = type(error).__name__
    from interlock._core.drive import drive
    for name, call in (("check", lease.check), ("release", lease.release), ("lock.release", lock.release)):
        drive(try_(name, call))
    os.write(write, json.dumps(said).encode())
    os._exit(0)
os.close(write)
import json
_, status = os.waitpid(child, 0)
{**json.loads(os.read(read, 10000)), "exit": status}
"""

FORK_AND_EXIT = """
import os, sys, interlock
url, name = sys.argv[1:]
client = interlock.connect(url)
lease = client.lock(name).acquire()
child = os.fork()
if not child:
    print("child:", client.lock(name).locked(), flush=True)
    sys.exit(0)  # with all its exit handlers
os.waitpid(child, 0)
lease.renew()
print("parent:", lease.state.value)
"""

WORKERS = """
import multiprocessing, sys, interlock
url, name = sys.argv[1:]
client = interlock.connect(url)
register = client.register(name)

def work():
    for _ in range(10):
        with client.lock(name):  # the parent's client, after a fork
            value = register.read().value or 0
            register.update(lambda _: value + 1)

fork = multiprocessing.get_context("fork")
with client.lock(name):
    workers = [fork.Process(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
for worker in workers:
    worker.join(60)
print(register.read().value)
"""
