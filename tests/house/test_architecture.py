"""docs/ARCHITECTURE.md names every room of the package, and whatever it and the decisions name exists.

The page is read as text and the source with `ast`: nothing is imported. `tests/docs/test_walks.py` runs its walks.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import FENCE, Walk, name, walks
from tests.house.source import ROOT, SRC, parse

SPAN = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"(?:[\w.-]+/)*[\w-]+\.(?:py|lua|sql|md|txt|toml)|(?:[\w.-]+/)+")
NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")

PACKAGE = SRC / "interlock"
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
FOLDERS = ("src", "tests", "benchmarks", "docs")
INSIDE = [ROOT / "docs" / "decisions", ROOT / "docs" / "backends"]
PAGES = [PAGE, ROOT / "CONTRIBUTING.md", *sorted(page for folder in INSIDE for page in folder.glob("*.md"))]


# ---- the rooms ---------------------------------------------------------------


def test_every_room_of_the_package_has_a_row() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## The rooms\n")[2].partition("\n## ")[0]
    rooms = {
        f"{path.name}/" if path.is_dir() else path.name
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    named = {
        span
        for row in section.splitlines()
        for span in SPAN.findall(row.split("|")[1] if row[:1] == "|" else "")
    }
    assert sorted(rooms - named - {"__init__.py", "__main__.py"}) == []


@pytest.mark.parametrize("package", sorted(path.parent for path in PACKAGE.rglob("__init__.py")), ids=name)
def test_every_package_says_what_it_is_for(package: Path) -> None:
    assert ast.get_docstring(parse(package / "__init__.py")), f"{name(package)}/__init__.py has no docstring"


# ---- the names ---------------------------------------------------------------


class Names:
    """What stands in a set of source files: top-level names, and the attributes of each class."""

    def __init__(self, *files: Path) -> None:
        self.top: set[str] = set()
        self._own: dict[str, set[str]] = {}
        self._bases: dict[str, set[str]] = {}
        for file in files:
            for node in parse(file).body:
                self._read(node)

    def _read(self, node: ast.stmt) -> None:
        if isinstance(node, ast.ClassDef):
            self._own.setdefault(node.name, set()).update(_attributes(node))
            bases = {found for base in node.bases for found in _last_name(base)}
            self._bases.setdefault(node.name, set()).update(bases)
        self.top |= _bound(node)

    def has(self, dotted: str) -> bool:
        """Whether it is a top-level name, or an attribute of a class or of one of its bases."""
        owner, _, attribute = dotted.rpartition(".")
        if not owner:
            return dotted in self.top
        return any(attribute in self._own.get(each, ()) for each in self._line(owner))

    def _line(self, owner: str) -> set[str]:
        found, todo = set[str](), [owner]
        while todo:
            if (each := todo.pop()) not in found:
                found.add(each)
                todo += self._bases.get(each, ())
        return found


def _bound(node: ast.stmt) -> set[str]:
    """The names that a statement binds, also below a condition such as `if TYPE_CHECKING`."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {leaf.id for target in node.targets for leaf in ast.walk(target) if isinstance(leaf, ast.Name)}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    if isinstance(node, ast.If):
        return {bound for statement in [*node.body, *node.orelse] for bound in _bound(statement)}
    return set()


def _attributes(node: ast.ClassDef) -> set[str]:
    """Methods and fields of a class, and what its methods set on `self`."""
    found = {bound for statement in node.body for bound in _bound(statement)}
    for leaf in ast.walk(node):
        if isinstance(leaf, ast.Attribute) and isinstance(leaf.ctx, ast.Store):
            found |= {leaf.attr} if isinstance(leaf.value, ast.Name) and leaf.value.id == "self" else set()
    return found


def _last_name(base: ast.expr) -> set[str]:
    while isinstance(base, ast.Subscript):
        base = base.value
    return (
        {base.attr} if isinstance(base, ast.Attribute) else {base.id} if isinstance(base, ast.Name) else set()
    )


@cache
def everything() -> Names:
    return Names(*PACKAGE.rglob("*.py"))


@cache
def names_of(file: Path) -> Names:
    return Names(file)


@cache
def module_names() -> set[str]:
    """Every module by its dotted name and by each end of it: `interlock.backends.memory`, `memory`."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(SRC).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        found |= {".".join(parts[start:]) for start in range(len(parts))}
    return found


def exists(dotted: str) -> bool:
    """Whether a module, class, function or constant of interlock has this name; Python's own count as well."""
    first, _, last = dotted.rpartition(".")
    return (
        dotted in module_names()
        or everything().has(dotted)
        or (first in module_names() and any(names_of(file).has(last) for file in _files(first)))
        or dotted.partition(".")[0] in sys.stdlib_module_names
        or keyword.iskeyword(dotted)
        or hasattr(builtins, dotted)
    )


def _files(module: str) -> list[Path]:
    ends = (f"/{module.replace('.', '/')}.py", f"/{module.replace('.', '/')}/__init__.py")
    return [path for path in PACKAGE.rglob("*.py") if path.as_posix().endswith(ends)]


def test_every_name_of_the_architecture_exists() -> None:
    spans = SPAN.findall(FENCE.sub("", PAGE.read_text(encoding="utf-8")))
    names = [span for span in spans if NAME.fullmatch(span) and not PATH.fullmatch(span)]
    assert len(names) > 50
    assert not [span for span in names if not exists(span)]


def test_every_file_of_the_picture_exists() -> None:
    picture = next(FENCE.finditer(PAGE.read_text(encoding="utf-8")))[2]
    names = re.findall(r"\w+\.py|\w+/", picture)
    assert len(names) > 10
    assert not [
        name for name in names if not (PACKAGE / name).exists() and not _files(name.removesuffix(".py"))
    ]


def test_a_name_that_does_not_exist_is_noticed() -> None:
    assert exists("Keeper.keep")
    assert exists("Store.claim")
    assert exists("urls")
    assert not exists("Keeper.knit")
    assert not exists("Keepsake")
    assert not exists("urls.keep")


@pytest.mark.parametrize("walk", walks(), ids=lambda walk: walk.title)
def test_every_step_of_a_walk_names_a_method_of_its_file(walk: Walk) -> None:
    known = {path: names_of(PACKAGE / path) for path, _ in walk.steps if (PACKAGE / path).exists()}
    wrong = [f"{path}: {step}" for path, step in walk.steps if path not in known or not known[path].has(step)]
    assert not wrong


# ---- the files ---------------------------------------------------------------


@cache
def files() -> set[str]:
    """Every file and folder of the repository that a page may name, as its path with a slash before it."""
    found: set[str] = set()
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*")):
        found.add(f"/{path.relative_to(ROOT).as_posix()}" + ("/" if path.is_dir() else ""))
    return found | {f"/{path.name}" for path in ROOT.iterdir()} | {f"/{folder}/" for folder in FOLDERS}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    spans = SPAN.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    paths = {span for span in spans if PATH.fullmatch(span)}
    missing = {path for path in paths if not any(file.endswith(f"/{path}") for file in files())}
    assert not missing, f"{name(page)} names files that are not there: {sorted(missing)}"
