"""`interlock lab model`: the protocol of the quorum, searched whole within small bounds."""

from __future__ import annotations

import time
from argparse import Namespace

from interlock._support.wording import duration
from interlock.cli import exit_codes
from interlock.cli.output import Output


def model(options: Namespace, output: Output) -> int:
    """Search the cases that are named, or all; 1 if one of them is not as it should be."""
    from interlock.lab.model.table import CASES
    from interlock.lab.status_line import StatusLine

    chosen = [case for case in CASES if not options.names or any(name in case.name for name in options.names)]
    if not chosen:
        from difflib import get_close_matches

        near = get_close_matches(options.names[0], [case.name for case in CASES], 1, 0.3)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        output.error(f"no case has {options.names[0]!r} in its name{meant}", exit_codes.USAGE)
        return exit_codes.USAGE
    status, surprises = StatusLine(output), 0
    for number, case in enumerate(chosen, 1):
        status.show(f"{number} of {len(chosen)}: {case.name}")
        began = time.perf_counter()
        found = case.search(options.deep)
        took = time.perf_counter() - began
        wrong = case.wrong(found)
        surprises += bool(wrong)
        status.wipe()
        verdict = "SURPRISE" if wrong else "broken, as it must be" if case.guilty else "safe"
        if output.json:
            output.document(
                {"case": case.name, "text": case.text, "verdict": verdict, "states": found.states,
                 "complete": found.complete, "crime": found.crime, "trace": found.trace,
                 "seconds": round(took, 2)}
            )  # fmt: skip
            continue
        colour = "red" if wrong else "green"
        how = "" if found.crime else ", complete" if found.complete else ", stopped before the end"
        shown = output.paint(f"{verdict:<22}", colour)
        output.line(f"{case.name:<28} {shown} {found.states:>8} states{how}, {duration(took)}: {case.text}")
        if options.names or wrong:
            for step, line in enumerate(found.trace, 1):
                output.line(f"    {step:2}. {line}")
            if found.crime:
                output.line(f"    => {found.crime}")
    return 1 if surprises else 0
