"""Says, at the end of a run, what CPython's own lock tests found: run and passed, per store."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    run: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    for outcome, reports in terminalreporter.stats.items():
        for report in reports:
            found = re.search(r"tests/cpython/.*::\w+TestsOn(\w+)::", getattr(report, "nodeid", ""))
            if found and outcome in ("passed", "failed", "error") and hasattr(report, "when"):
                run[found[1]] += 1
                passed[found[1]] += outcome == "passed"
    for store in sorted(run):
        terminalreporter.write_line(
            f"CPython's lock tests on {store}: {run[store]} run, {passed[store]} passed"
        )
