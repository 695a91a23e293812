"""The package's own source, read without importing it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"


def modules() -> dict[str, Path]:
    """Every module of interlock by its dotted name below it: `_core.lease`; "" is the package."""
    found: dict[str, Path] = {}
    for path in sorted((SRC / "interlock").rglob("*.py")):
        parts = path.relative_to(SRC / "interlock").with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(name: str, path: Path, known: dict[str, Path]) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of all a module imports, also inside functions and for types only.

    `from interlock import model` counts as `interlock.model`, and a relative import as what it means.
    """
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in _import_statements(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        else:
            origin = node.module or ""
            if node.level:
                above = ["interlock", *filter(None, package.split("."))]
                above = above[: len(above) - node.level + 1]
                origin = ".".join([*above, *filter(None, [origin])])
            for alias in node.names:
                whole = f"{origin}.{alias.name}"
                yield node.lineno, whole if whole.removeprefix("interlock.") in known else origin


@cache
def _import_statements(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Kept, because three tests ask for them; the tree is not, or each `gc.collect()` of a later test would read it."""
    return tuple(node for node in ast.walk(parse(path)) if isinstance(node, ast.Import | ast.ImportFrom))
