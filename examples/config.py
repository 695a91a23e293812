"""Four threads add to one list. A register applies each change to the latest value, so none is lost."""

import json
import os
import threading

import interlock

client = interlock.connect()
servers = client.register(f"servers-{os.getpid()}")


def announce(name: str) -> None:
    servers.update(lambda value: json.dumps([*json.loads(value or "[]"), name]))


threads = [threading.Thread(target=announce, args=(f"web-{number}",)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
names = json.loads(servers.read().value or "[]")
servers.update(lambda value: None)  # None deletes it
assert sorted(names) == ["web-0", "web-1", "web-2", "web-3"], names
print(names)
