"""Search the models of the quorum and say what was found.

python -m tests.redlock.model [--deep] [NAME...]      a name is part of a case's name
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.redlock.model.table import CASES


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.redlock.model", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--deep", action="store_true", help="more nodes, higher numbers: minutes")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    surprises = 0
    for case in CASES:
        if options.names and not any(name in case.name for name in options.names):
            continue
        began = time.perf_counter()
        found = case.search(options.deep)
        took = time.perf_counter() - began
        wrong = case.wrong(found)
        surprises += bool(wrong)
        verdict = "SURPRISE" if wrong else "broken, as it must be" if case.guilty else "safe"
        how = "" if found.crime else ", complete" if found.complete else ", stopped"
        print(
            f"{case.name:26} {verdict:22} {found.states:8} states{how} in {took:.1f} s: {case.text}",
            flush=True,
        )
        for number, line in enumerate(found.trace, 1):
            print(f"    {number:2}. {line}")
        if found.crime:
            print(f"    => {found.crime}")
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
