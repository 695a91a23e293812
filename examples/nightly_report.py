"""Three workers start the same job, and one of them runs it; the others are told why they skip."""

import threading
import time

import interlock

client = interlock.connect()
ran: list[str] = []


@client.once("report:{day}", min_hold=5)  # a worker that comes up to five seconds late skips as well
def report(day: str) -> str:
    ran.append(day)
    return f"report of {day}"


def worker(number: int) -> None:
    outcome = report(today)
    if isinstance(outcome, interlock.Skipped):
        print(f"worker {number} skips: {outcome}")
    else:
        print(f"worker {number}: {outcome}")


today = time.strftime("%Y-%m-%d %H:%M:%S")
workers = [threading.Thread(target=worker, args=(number,)) for number in (1, 2, 3)]
for thread in workers:
    thread.start()
for thread in workers:
    thread.join()
assert len(ran) == 1
