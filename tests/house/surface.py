"""The public surface as text: every public name, its signature, and whether it is awaited.

`python3 dev.py surface` writes it to the reviewed file beside this one.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PUBLIC = (
    "interlock",
    "interlock.aio",
    "interlock.errors",
    "interlock.model",
    "interlock.ports",
    "interlock.events",
)
REVIEWED = Path(__file__).with_name("public_surface.txt")


def render() -> str:
    """The whole surface; equal on every Python and system interlock runs on."""
    return "\n".join(line for name in PUBLIC for line in (*module_lines(name), "")).rstrip() + "\n"


def module_lines(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    yield f"module {name}"
    for public in sorted(names(module)):
        value = getattr(module, public)
        home = getattr(value, "__module__", None)
        if inspect.ismodule(value):
            yield f"  {public}: module {value.__name__}"
        elif inspect.isclass(value) and home in (name, None):
            yield from class_lines(public, value)
        elif callable(value) and inspect.isroutine(value) and home == name:
            yield f"  {call(public, value)}"
        elif inspect.isclass(value) or inspect.isroutine(value):
            # Where the user finds it, and from where: the body is listed once, at home if that is public.
            yield f"  {public} = {home}.{value.__qualname__}"
            if inspect.isclass(value) and home not in PUBLIC:
                yield from (f"  {line}" for line in member_lines(value))
        else:
            yield f"  {public}: {type(value).__name__}"


def names(module: Any) -> list[str]:
    """What `__all__` says, or else what is defined here under a public name."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and getattr(value, "__module__", module.__name__) == module.__name__
        and type(value).__module__ != "__future__"
    ]


def class_lines(name: str, cls: type) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in cls.__bases__ if base is not object)
    yield f"  class {name}({bases})" if bases else f"  class {name}"
    yield from member_lines(cls)


def member_lines(cls: type) -> Iterator[str]:
    """Fields first, then calls and properties by name; inherited ones count only if ours."""
    if dataclasses.is_dataclass(cls):
        for field in dataclasses.fields(cls):
            default = "" if field.default is dataclasses.MISSING else f" = {field.default!r}"
            yield f"    {field.name}: {field.type}{default}"
    for name, value in sorted(members(cls).items()):
        if isinstance(value, property):
            settable = ", settable" if value.fset else ""
            yield f"    property {name}: {returns(value.fget)}{settable}"
        elif isinstance(value, classmethod | staticmethod):
            yield f"    {type(value).__name__} {call(name, value.__func__)}"
        elif inspect.isfunction(value) and shown(name, value):
            yield f"    {call(name, value)}"


def members(cls: type) -> dict[str, Any]:
    """What the class has of its own and from its parents, as far as interlock wrote them."""
    found: dict[str, Any] = {}
    for parent in reversed(cls.__mro__):
        if parent.__module__.split(".")[0] == "interlock":
            found |= vars(parent)
    return found


SPECIAL = {
    "__call__",
    "__enter__",
    "__exit__",
    "__aenter__",
    "__aexit__",
    "__bool__",
    "__iter__",
    "__aiter__",
}


def shown(name: str, function: Any) -> bool:
    """Public, or special and written by hand: what dataclasses and protocols generate says nothing new."""
    if name == "__init__":
        module, file = str(function.__module__), str(function.__code__.co_filename)
        return module.split(".")[0] == "interlock" and file != "<string>"
    return not name.startswith("_") or name in SPECIAL


def call(name: str, function: Any) -> str:
    awaited = "async def" if inspect.iscoroutinefunction(function) else "def"
    return f"{awaited} {name}{inspect.signature(function)}"


def returns(function: Any) -> str:
    return str(inspect.signature(function).return_annotation)


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        REVIEWED.write_text(render(), encoding="utf-8")
        print(f"written: {REVIEWED}; review it with the change that caused it")
    else:
        print(render(), end="")
