"""One of three processes leads. It is killed, and another takes over with a higher token."""

import multiprocessing
import os
import signal
import time

import interlock

ELECTION = f"scheduler-{os.getpid()}"


def candidate(name: str) -> None:
    client = interlock.connect(ttl=2)
    client.election(name).campaign(f"process {os.getpid()}")  # returns once this process leads
    time.sleep(60)  # the work of a leader


def wait_for_leader(client: interlock.Client, after: int = 0) -> interlock.Leader:
    for leader in client.election(ELECTION).observe():
        if leader is not None and leader.token > after:
            return leader
    raise AssertionError("observing ended")


if __name__ == "__main__":
    candidates = [multiprocessing.Process(target=candidate, args=(ELECTION,), daemon=True) for _ in range(3)]
    for process in candidates:
        process.start()
    with interlock.connect(ttl=2) as client:
        first = wait_for_leader(client)
        print(f"{first.value} leads with token {first.token}")
        os.kill(int(first.value.split()[1]), signal.SIGKILL)
        second = wait_for_leader(client, after=first.token)
        print(f"it was killed; {second.value} leads with token {second.token}")
    assert second.token > first.token
