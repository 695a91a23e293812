"""The tables of modules in docs/ARCHITECTURE.md. `python3 -m tests.house.architecture` mends them after files have moved.

A row whose file has moved moves with it; a new file gets the first sentence of its docstring or header: read it, and say in
one line what the module is for.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from tests.house.source import ROOT, SRC, parse

PAGE = ROOT / "docs" / "ARCHITECTURE.md"
PACKAGE = SRC / "interlock"
SHIPPED = (".py", ".lua", ".sql")

HEADING = re.compile(r"^### `src/(interlock/[\w/]*)`$", re.MULTILINE)
ROW = re.compile(r"^\| `([\w.]+)` \| (.+) \|$")
BEGIN, END = "## Modules\n", "\n## Beside the package\n"
COLUMNS = ["| module | what it is for |", "|---|---|"]


@dataclass
class Part:
    """What the page says of one package: a sentence, and a row for each of its files."""

    text: list[str] = field(default_factory=list[str])
    rows: dict[str, str] = field(default_factory=dict[str, str])


def parts() -> dict[str, Part]:
    """The packages that the page names, each by its path below `src` with a slash at the end."""
    section = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    found: dict[str, Part] = {}
    for chunk in re.split(r"^(?=### )", section, flags=re.MULTILINE)[1:]:
        first, *lines = chunk.splitlines()
        heading = HEADING.fullmatch(first)
        assert heading is not None, f"a heading of docs/ARCHITECTURE.md names no package: {first}"
        part = found.setdefault(heading[1], Part())
        for line in lines:
            if row := ROW.match(line):
                part.rows[row[1]] = row[2]
            elif line and line not in COLUMNS:
                part.text.append(line)
    return found


def listed() -> set[str]:
    """The files that the tables name, by their paths below `src`."""
    return {package + file for package, part in parts().items() for file in part.rows}


def shipped() -> set[str]:
    """The files that the tables must name. An `__init__.py` is its package, which has a heading."""
    files = (path for path in PACKAGE.rglob("*") if path.suffix in SHIPPED and path.name != "__init__.py")
    return {path.relative_to(SRC).as_posix() for path in files}


def packages() -> set[str]:
    return {f"{path.parent.relative_to(SRC).as_posix()}/" for path in PACKAGE.rglob("__init__.py")}


def first_sentence(path: str) -> str:
    """What a file says of itself."""
    file = SRC / path
    text = file.read_text(encoding="utf-8")
    said = ast.get_docstring(parse(file)) or "" if file.suffix == ".py" else text.lstrip("- ")
    return said.partition("\n")[0]


def mended() -> str:
    """The page, with a row for each file and none for a file that is gone."""
    old, files = parts(), shipped()
    rows = {package + file: said for package, part in old.items() for file, said in part.rows.items()}
    gone = [path for path in rows if path not in files]
    names = [
        path.rpartition("/")[2] for path in gone
    ]  # where two have one name, nobody knows which moved where
    moved = {name: rows[path] for path, name in zip(gone, names, strict=True) if names.count(name) == 1}
    lines: list[str] = []
    for package in _in_order(list(old)):
        part = old.get(package, Part([first_sentence(f"{package}__init__.py")]))
        lines += ["", f"### `src/{package}`", "", *part.text]
        here = [path for path in files if path.rpartition("/")[0] + "/" == package]
        kept = [package + file for file in part.rows if package + file in here]
        if here:
            lines += ["", *COLUMNS]
        for path in [*kept, *sorted(set(here) - set(kept))]:
            file = path.rpartition("/")[2]
            lines.append(f"| `{file}` | {rows.get(path) or moved.get(file) or first_sentence(path)} |")
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    before = rest.partition("### ")[0].strip()
    tail = rest.partition(END)[2]
    return f"{head}{BEGIN}\n{before}\n" + "\n".join(lines) + f"\n{END}{tail}"


def _in_order(known: list[str]) -> list[str]:
    """The packages in the order of the page; a new one stands behind its parent and the parent's other packages."""
    order = [package for package in known if package in packages()]
    for package in sorted(packages() - set(known)):
        parent = package[:-1].rpartition("/")[0] + "/"
        family = [place for place, other in enumerate(order) if other.startswith(parent)]
        order.insert(family[-1] + 1 if family else len(order), package)
    return order


if __name__ == "__main__":
    PAGE.write_text(mended(), encoding="utf-8")
