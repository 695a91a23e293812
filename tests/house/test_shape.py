"""Functions are short, and modules are named after what they are about."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.source import ROOT, modules, parse

SAYS_NOTHING = {"utils", "util", "helpers", "helper", "manager", "managers", "impl", "misc"}
LONGEST_FUNCTION = 40
EXCUSE = "Long because"

MODULES = {name or "interlock": path for name, path in modules().items()}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def own_lines(function: Function) -> int:
    """Lines of a function without its docstring: a promise told at length is no complexity."""
    said = ast.get_docstring(function, clean=False) is not None
    docstring = function.body[0]
    told = (docstring.end_lineno or 0) - docstring.lineno + 1 if said else 0
    return (function.end_lineno or 0) - function.lineno + 1 - told


def long_functions(path: Path) -> Iterator[str]:
    for node in ast.walk(parse(path)):
        if isinstance(node, Function) and own_lines(node) > LONGEST_FUNCTION:
            if EXCUSE not in (ast.get_docstring(node) or ""):
                yield f"{path}:{node.lineno}: {node.name} has {own_lines(node)} lines"


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_named_after_its_noun(name: str) -> None:
    empty = SAYS_NOTHING & {part.strip("_") for part in name.split(".")}
    assert not empty, f"{name}: {empty} says nothing; name it after what it is about"


@pytest.mark.parametrize("path", [*MODULES.values(), ROOT / "dev.py"], ids=lambda path: path.stem)
def test_a_long_function_explains_itself(path: Path) -> None:
    long = list(long_functions(path))
    assert not long, "\n".join(["", *long, f'cut it, or say why it is one thing: "{EXCUSE} ..."'])


OF_ALL_THREADS = {
    "umask": "files that other threads make meanwhile get its mode; give a mode to the call that makes the file",
    "makedirs": "its mode is that of the last folder only, and the umask decides about the others; make each one",
}


@pytest.mark.parametrize("name", MODULES)
def test_the_umask_of_the_process_is_neither_changed_nor_relied_on(name: str) -> None:
    called = {node.attr for node in ast.walk(parse(MODULES[name])) if isinstance(node, ast.Attribute)}
    found = [f"{name}: {word}: {why}" for word, why in OF_ALL_THREADS.items() if word in called]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", MODULES)
def test_nothing_waits_in_a_way_that_may_forget_a_cancellation(name: str) -> None:
    """In Python 3.11, asyncio.wait_for returns a result that comes together with a cancellation."""
    assert "asyncio.wait_for(" not in MODULES[name].read_text(encoding="utf-8"), (
        f"{name}: say asyncio.timeout"
    )
