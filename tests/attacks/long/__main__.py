"""Attacks that take a minute each: programs that use the public API alone, run on demand.

    python -m tests.attacks.long               # all of them, one after the other
    python -m tests.attacks.long kills         # one of them
    python -m tests.attacks.long.kills --help  # it has options

Each prints what it did and what it found, and ends with code 0 if everything held.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

ATTACKS = {
    "collected": "generators under a lock, in reference cycles, collected at any moment",
    "interrupts": "signals that raise around the end of a body",
    "removed": "the -shm of a lock file removed while processes contend for it",
    "stopped_node": "one node of a Cluster stopped, with 40 waiters on it and a lease on another",
    "cancelled": "tasks cancelled while the store hangs",
    "threads": "40 threads back to back beside five held leases",
    "distance": "a Redlock whose nodes are 90 ms away",
    "kills": "kill -9 of the holder of a lock in a file",
    "scale": "thousands of waiters, readers, leases and names on one store",
    "stale_read": "a leader of etcd that was replaced without noticing answers keep-alives",
    "names": "a million pairs over a hundred thousand names, and what is left of them",
}

RUNS = {
    "collected": ([], ["--store", "sqlite"]),
    "interrupts": (
        [],
        ["--store", "memory"],
        ["--ctrl-c"],
        ["--store", "redis"],
        ["--store", "redis", "--ctrl-c"],
    ),
    "scale": tuple(
        ["--store", kind] for kind in ("sqlite", "redis", "etcd", "zookeeper", "postgresql", "mysql")
    ),
    "names": tuple(
        ["--store", kind, "--pairs", "100000", "--names", "10000"]
        for kind in ("sqlite", "redis", "etcd", "zookeeper", "postgresql", "mysql")
    ),
    "threads": ([], ["--store", "sqlite"], ["--store", "redlock"]),
}
"""With which options `python -m tests.attacks.long` runs an attack, if not once without any."""


def main() -> int:
    listed = "\n".join(f"  {name:<14} {text}" for name, text in ATTACKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.attacks.long",
        description=f"Attacks that take a minute each:\n\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "name", nargs="*", help="default: all; python -m tests.attacks.long.NAME takes options"
    )
    failed = []
    for name in parser.parse_args().name or ATTACKS:
        for options in RUNS.get(name, ([],)):
            words = [sys.executable, "-m", f"tests.attacks.long.{name}", *options]
            print(f"\n--- {' '.join(words[1:])}", flush=True)
            if subprocess.run(words).returncode:
                failed.append(" ".join(words[1:]))
    print("\n" + ("\n".join(["broken:", *failed]) if failed else "all held"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
