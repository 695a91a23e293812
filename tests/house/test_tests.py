"""Test modules stand alone: what several of them need is in a module named after it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.source import ROOT

# In the text and not in the syntax tree, because tests also start programs that they hold as text, and name modules in tables.
OF_A_TEST_MODULE = re.compile(
    r"^\s*(?:from\s+tests(?:\.\w+)*\.test_\w+\s+import|import\s+tests(?:\.\w+)*\.test_\w+|from\s+tests(?:\.\w+)*\s+import\s.*\btest_\w+)"
    r"|^\s*from\s+\.+(?:\w+\.)*test_\w+\s+import"
    r"|[\"']tests(?:\.\w+)*\.test_\w+[\"']",
    re.MULTILINE,
)
FILES = [
    path
    for folder in ("tests", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path != Path(__file__)
]


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES}), ids=lambda path: str(path.name))
def test_no_module_imports_a_test_module(folder: Path) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match.group().strip()}"
        for path in FILES
        if path.parent == folder
        for match in OF_A_TEST_MODULE.finditer(path.read_text())
    ]
    assert not found, "\n".join(["", *found, "move what both need into a module named after it"])


@pytest.mark.parametrize(
    "line",
    [
        "from tests.redis.test_chaos import Waiter",
        "    from tests.redis.test_chaos import Waiter",
        "import tests.redis.test_chaos as chaos",
        "from tests.redis import holders, test_chaos",
        "from .test_chaos import Waiter",
        'KINDS = ("tests.redis.test_field", "REDIS")',
    ],
)
def test_an_import_of_a_test_module_is_found(line: str) -> None:
    assert OF_A_TEST_MODULE.search(line)
