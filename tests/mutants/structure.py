"""Finds code by its structure and puts other code in its place, whatever its format, its comments and its names are.

A pattern is Python: an expression, or one or several statements. It fits code of the same shape, and must fit exactly one place in
the function that it names. If none has the same names, each name of the pattern may stand for another one, always for the
same: so a mutant outlives the renaming of what it changes. `...` as a body stands for any body, which is kept; if the first body of
a statement is `...`, parts that the pattern does not name (`else`, `except`) are kept, too.
"""

from __future__ import annotations

import ast
import builtins
import copy
import dataclasses
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

Names: TypeAlias = "dict[tuple[str, str], str]"
"""What each name of a pattern stands for, by kind: a variable and an attribute of one name are renamed apart."""

KEPT = {*dir(builtins), "self", "cls"}  # names that mean the same everywhere


@dataclass(slots=True)
class Match:
    """A place where a pattern fits: so many nodes of a list of its parent, or one child of it."""

    parent: ast.AST
    field: str
    first: int | None  # the index in a list; None if the child stands alone
    count: int
    names: Names = dataclasses.field(default_factory=dict[tuple[str, str], str])
    bodies: list[dict[str, Any]] = dataclasses.field(default_factory=list[dict[str, Any]])


def edited(source: str, within: str, old: str, new: str) -> str:
    """Return the source with one place changed; raise `LookupError` unless the pattern fits exactly one."""
    tree = ast.parse(source)
    scopes = [scope for name, scope in _scopes(tree) if name == within] if within else [tree]
    pattern, change = _parsed(old), _parsed(new)
    if not (_is_expression(pattern) and _is_expression(change)):
        pattern, change = _as_statements(pattern), _as_statements(change)
    found: list[Match] = []
    for scope, renamed in ((scopes, False), (scopes, True), ([tree], True)):
        found = [match for each in scope for match in _matches(each, pattern, renamed=renamed)]
        if found:
            break
    if len(found) != 1:
        raise LookupError(f"{within or 'the module'}: fits {len(found)} places, not one:\n{old}")
    _replace(found[0], change)
    return ast.unparse(ast.fix_missing_locations(tree))


def _parsed(code: str) -> list[ast.AST]:
    """The statements of a pattern; an expression alone is an expression, not a statement."""
    body = ast.parse(textwrap.dedent(code).strip()).body
    if len(body) == 1 and isinstance(body[0], ast.Expr):
        return [body[0].value]
    return list(body)


def _is_expression(code: list[ast.AST]) -> bool:
    return len(code) == 1 and isinstance(code[0], ast.expr)


def _as_statements(code: list[ast.AST]) -> list[ast.AST]:
    return [ast.Expr(node) if isinstance(node, ast.expr) else node for node in code]


def _scopes(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Every function and class below a node, with its qualified name."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + child.name, child
            yield from _scopes(child, f"{prefix}{child.name}.")
        else:
            yield from _scopes(child, prefix)


def _matches(scope: ast.AST, pattern: list[ast.AST], *, renamed: bool) -> Iterator[Match]:
    statements = not isinstance(pattern[0], ast.expr)
    for parent in ast.walk(scope):
        for name, value in ast.iter_fields(parent):
            if isinstance(value, list):
                nodes: list[Any] = value
                for first in range(len(nodes) - len(pattern) + 1):
                    run = nodes[first : first + len(pattern)]
                    if statements == isinstance(run[0], ast.stmt):
                        match = Match(parent, name, first, len(pattern))
                        if all(
                            _fits(want, node, match, renamed) for want, node in zip(pattern, run, strict=True)
                        ):
                            yield match
            elif isinstance(value, ast.expr) and not statements:
                match = Match(parent, name, None, 1)
                if _fits(pattern[0], value, match, renamed):
                    yield match


def _fits(want: Any, node: Any, match: Match, renamed: bool) -> bool:
    """Whether a node has the shape of a pattern; notes what its names stand for, and the bodies that it leaves open."""
    if isinstance(want, list):
        wanted: list[Any] = want
        return len(wanted) == len(node) and all(
            _fits(one, other, match, renamed) for one, other in zip(wanted, node, strict=True)
        )
    if not isinstance(want, ast.AST):
        return type(want) is type(node) and want == node
    if type(want) is not type(node):
        return False
    kept = _open_parts(want)
    if kept:
        match.bodies.append({name: getattr(node, name) for name in kept})
    for name, value in ast.iter_fields(want):
        other = getattr(node, name)
        if name == "ctx" or name in kept:
            continue
        if name in NAMES and isinstance(value, str):
            if not _same_name((type(want).__name__, value), other, match.names, renamed):
                return False
        elif not _fits(value, other, match, renamed):
            return False
    return True


BODIES = ("body", "handlers", "orelse", "finalbody")
NAMES = ("id", "attr", "arg", "name")


def _open_parts(want: ast.AST) -> list[str]:
    """The bodies of a statement that its pattern leaves open."""
    bodies = {name: cast("list[Any]", getattr(want, name)) for name in BODIES if hasattr(want, name)}
    if not isinstance(bodies.get("body", []), list):
        return []  # a lambda, or an expression with an if
    dots = [name for name, body in bodies.items() if len(body) == 1 and _is_dots(body[0])]
    return [name for name, body in bodies.items() if name in dots or ("body" in dots and not body)]


def _is_dots(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Expr) and ast.unparse(statement) == "..."


def _same_name(want: tuple[str, str], other: str | None, names: Names, renamed: bool) -> bool:
    if not renamed or want[1] in KEPT:
        return want[1] == other
    if other is None or other in KEPT:
        return False
    if want not in names and any(kind == want[0] and known == other for (kind, _), known in names.items()):
        return False  # two names of the pattern never stand for one
    return names.setdefault(want, other) == other


def _from_the_top(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it, in the order in which `_fits` meets them."""
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _from_the_top(child)


def _replace(match: Match, new: list[ast.AST]) -> None:
    nodes = [copy.deepcopy(node) for node in new]
    bodies = iter(match.bodies)
    for node in nodes:
        for each in list(_from_the_top(node)):
            for name in NAMES:
                value = getattr(each, name, None)
                if isinstance(value, str):
                    setattr(each, name, match.names.get((type(each).__name__, value), value))
            if kept := _open_parts(each):
                for name, body in next(bodies).items():
                    if name in kept:
                        setattr(each, name, body)
    if match.first is None:
        setattr(match.parent, match.field, nodes[0])
        return
    run: list[Any] = getattr(match.parent, match.field)
    if not nodes and len(run) == match.count:
        nodes = [ast.Pass()]
    run[match.first : match.first + match.count] = nodes
