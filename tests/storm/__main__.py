"""A long storm on demand.

    python -m tests.storm --url-kind redlock --grants 5000 --faults 200 --seed 1

Exit code 0: nothing happened that must never happen. `--keep` leaves the history, to be judged again.
"""

from __future__ import annotations

import argparse
import sys

from tests.storm.field import KINDS
from tests.storm.storm import Scene, rage
from tests.storm.witness import SHARED


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description="A storm on real servers.")
    parser.add_argument("--url-kind", choices=KINDS, required=True, help="which servers")
    parser.add_argument("--grants", type=int, default=1000, help="updates of guarded counters, at least")
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ttl", type=float, default=1.0, help="seconds")
    parser.add_argument("--rwlock", action="store_true", help="read-write locks instead of locks")
    parser.add_argument("--keep", action="store_true", help="keep the history")
    said = parser.parse_args()
    made = Scene(said.url_kind, said.ttl, prefix=SHARED if said.rwlock else "")
    try:
        made.field.start()
        found = rage(made, said.seed, said.grants, said.faults, lambda text: print(text, flush=True))
    finally:
        made.close()
    print(f"{said.url_kind}, seed {said.seed}: {found}")
    if said.keep or found.violations:
        print(f"the history is in {made.folder}")
    else:
        made.forget()
    return 1 if found.violations else 0


if __name__ == "__main__":
    sys.exit(main())
