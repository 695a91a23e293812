"""Money moves between two accounts under both locks, in whichever order they are named."""

import threading

import interlock

accounts = {"alice": 100, "bob": 100}
client = interlock.connect()


def transfer(source: str, target: str, amount: int) -> None:
    with client.multilock([f"account:{source}", f"account:{target}"], timeout=30):
        accounts[source] -= amount
        accounts[target] += amount


threads = [
    threading.Thread(target=transfer, args=names) for names in [("alice", "bob", 1), ("bob", "alice", 2)] * 10
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert accounts == {"alice": 110, "bob": 90}, accounts
print(accounts)
