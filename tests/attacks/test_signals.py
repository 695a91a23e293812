"""SIGTERM in odd moments: whatever the main thread is doing, all is given back, and soon."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import interlock
from interlock.testing.lag import at_most
from tests.attacks.stage import ENVIRONMENT
from tests.patience import PATIENCE

START = """
import asyncio, sys, threading, interlock
interlock.release_on_signal()
url = sys.argv[1]
def ready():
    print("ready", flush=True)
"""

PROGRAMS = {
    "taking and giving back all the time": """
with interlock.connect(url) as client, client.lock("held"):
    ready()
    while True:
        with client.lock("hot"):
            pass
""",
    "waiting for a lock": """
with interlock.connect(url) as client, client.lock("held"):
    threading.Timer(0.1, ready).start()
    client.lock("taken").acquire()
""",
    "waiting for an event": """
with interlock.connect(url) as client, client.lock("held"):
    ready()
    client.event("never").wait()
""",
    "in a decorated function": """
client = interlock.connect(url)
@client.lock("held")
def work():
    ready()
    threading.Event().wait()
work()
""",
    "running an event loop that takes and gives back": """
async def main():
    async with interlock.aio.connect(url) as client, client.lock("held"):
        ready()
        while True:
            async with client.lock("hot"):
                pass
asyncio.run(main())
""",
    "with a handler of its own": """
import signal
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
interlock.release_on_signal()
with interlock.connect(url) as client, client.lock("held"):
    ready()
    while True:
        with client.lock("hot"):
            pass
""",
}


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM to send")
@pytest.mark.parametrize("what", PROGRAMS)
def test_sigterm_gives_everything_back_and_soon(what: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    with interlock.connect(url) as client, client.lock("taken"):
        for _ in range(3):
            program = START + PROGRAMS[what]
            command = [sys.executable, "-c", program, url]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT)
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            with at_most(2):
                process.send_signal(signal.SIGTERM)
                code = process.wait(PATIENCE)
                process.stdout.close()
            assert code == (7 if "own" in what else -signal.SIGTERM)
            # What a task has just asked for may be granted as the process goes: that lapses by itself.
            assert set(client.scan()) - ({"hot"} if "loop" in what else set()) == {"taken"}
            assert not client.inspect("taken").waiters


GOES_ON = {
    "a handler that sets a flag": "signal.signal(signal.SIGTERM, lambda *_: came.append(1))",
    "a handler that sets a flag, asked for twice": """
signal.signal(signal.SIGTERM, lambda *_: came.append(1))
interlock.release_on_signal()""",
    "a signal that is ignored": "signal.signal(signal.SIGTERM, signal.SIG_IGN); came.append(1)",
    "a handler of the event loop": """
loop = asyncio.new_event_loop()
loop.add_signal_handler(signal.SIGTERM, came.append, 1)""",
}

WORKER = """
import asyncio, signal, sys, interlock
came = []
{handler}
interlock.release_on_signal()
with interlock.connect(sys.argv[1]) as client, client.lock("orders") as lease:
    signal.raise_signal(signal.SIGTERM)
    if "loop" in globals():
        loop.run_until_complete(asyncio.sleep(0))
    print(len(came), lease.state.value, client.lock("orders").locked(), flush=True)
print("ended well")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM to send")
@pytest.mark.parametrize("what", GOES_ON)
def test_a_program_that_goes_on_after_the_signal_keeps_its_leases(what: str, tmp_path: Path) -> None:
    """Servers and task queues set a flag and finish the work in hand: nobody else may begin it meanwhile."""
    program = WORKER.format(handler=GOES_ON[what])
    command = [sys.executable, "-c", program, f"sqlite:///{tmp_path}/locks.db"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=ENVIRONMENT, timeout=PATIENCE, check=False
    )
    assert done.stdout.splitlines() == ["1 held True", "ended well"], done.stderr
    assert done.returncode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
@pytest.mark.parametrize("name", ["SIGCHLD", "SIGWINCH", "SIGTSTP", "SIGCONT"])
def test_a_signal_that_ends_no_program_is_refused(name: str) -> None:
    number = getattr(signal, name)
    before = signal.getsignal(number)
    try:
        with pytest.raises(interlock.InvalidSetting, match=f"{name} does not end a program"):
            interlock.release_on_signal(number)
        assert signal.getsignal(number) is before
    finally:
        signal.signal(number, before)


STRIKES = """
import signal, sqlite3, sys, interlock
from contextlib import closing, suppress
url, what = sys.argv[1:]

def rows(statement):
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30, isolation_level=None)) as file:
        return file.execute(statement + " from claim where resource <> 'taken'").fetchall()

def strike(frame, event, _):  # interrupts the main thread in one of its calls, as a signal would
    global calls
    if event == "call":
        calls -= 1
        if calls == 0:
            sys.setprofile(None)
            struck.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")
            handler(signal.SIGTERM, frame)

def end(number):  # what the process does last: here it looks at the store, and goes on
    left.append(rows("select resource"))
    signal.signal(signal.SIGTERM, handler)

signal.raise_signal = end
interlock.release_on_signal(timeout=1.0)
handler = signal.getsignal(signal.SIGTERM)
client = interlock.connect(url)
lock = client.lock(what)
number, struck = 0, [""]
while struck:
    number, left, struck = number + 1, [], []
    client.lock("held").acquire()
    calls = number
    sys.setprofile(strike)
    lease = lock.acquire(blocking=False)
    if lease is not None:
        with suppress(interlock.NotHeld):  # the signal has released it
            lock.release()
    sys.setprofile(None)
    while struck and not left:
        pass  # the signal comes again within milliseconds
    if left and left[0]:
        print("left behind by a signal in", struck[0], left[0])
    rows("delete")
print(number, "calls")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM to send")
@pytest.mark.parametrize("what", ["hot", "taken"])
def test_sigterm_in_any_call_of_a_take_and_a_give_leaves_nothing_behind(what: str, tmp_path: Path) -> None:
    """Also in constructors that were compiled at run time, whose code stands in no file."""
    url = f"sqlite:///{tmp_path}/locks.db"
    with interlock.connect(url) as client, client.lock("taken"):
        command = [sys.executable, "-c", STRIKES, url, what]
        done = subprocess.run(
            command, capture_output=True, text=True, env=ENVIRONMENT, timeout=PATIENCE, check=False
        )
    assert done.returncode == 0, done.stderr
    *found, calls = done.stdout.splitlines()
    assert int(calls.split()[0]) > 20
    assert not found
