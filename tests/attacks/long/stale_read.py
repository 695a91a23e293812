"""A leader of etcd that was replaced without noticing answers keep-alives, and confirms reads that are stale (etcd 20418).

    python -m tests.attacks.long.stale_read --runs 25
    python -m tests.attacks.long.stale_read --runs 25 --program /folder/etcd      # another version than the installed one

Held is: no keep-alive counts that only a deposed leader has confirmed. How often a plain read beside it was stale is printed.
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.etcd.stale_read import NotStaged, StaleRead, staged


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.long.stale_read", description=__doc__)
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--program", help="the program etcd")
    options = parser.parse_args()
    if options.program:
        os.environ["ETCD_PROGRAM"] = options.program
    done = failed = 0
    sums = {"same_id": 0, "answered": 0, "stale": 0, "counted": 0}
    with staged() as (cluster, ways):
        status = cluster.leader().status()
        assert status is not None
        while done < options.runs and failed < 3 * options.runs:
            scene = StaleRead(cluster, ways)
            try:
                scene.run()
            except NotStaged:
                failed += 1
                continue
            done += 1
            for name in sums:
                sums[name] += getattr(scene, name)
            print(f"  {done}: {', '.join(name for name in sums if getattr(scene, name)) or '-'}", flush=True)
    print(
        f"etcd {status.version}, {done} runs ({failed} were not staged): the id of a read was used twice in {sums['same_id']}, the"
        f" deposed leader answered the keep-alive in {sums['answered']}, a plain read was stale in {sums['stale']}, the"
        f" keep-alive counted in {sums['counted']}"
    )
    return 0 if done == options.runs and sums["counted"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
