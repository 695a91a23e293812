"""Says, at the end of a run, what CPython's own lock tests found: run and passed, per store."""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import Any

# `dev.py test --python` sets it for an interpreter that comes without them.
collect_ignore_glob = ["test_*.py"] if os.environ.get("INTERLOCK_UNJUDGED") else []


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
