"""The public surface as text: every public name, its signature, and whether it is awaited.

`python3 dev.py surface` writes it to the reviewed file beside this one.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

PUBLIC = (
    "interlock",
    "interlock.aio",
    "interlock.errors",
    "interlock.events",
    "interlock.guards",
    "interlock.guards.file",
    "interlock.guards.http",
    "interlock.guards.redis",
    "interlock.guards.sql",
    "interlock.model",
    "interlock.store",
)
REVIEWED = Path(__file__).with_name("public_surface.txt")
PROTOCOLS = {  # what a class can be used for, by the special method that makes it so
    "__enter__": "with",
    "__aenter__": "async with",
    "__call__": "decorator",
    "__iter__": "for",
    "__aiter__": "async for",
    "__bool__": "truth",
}


def render() -> str:
    """The whole surface; equal on every Python and system interlock runs on."""
    return "\n".join(line for name in PUBLIC for line in (*module_lines(name), "")).rstrip() + "\n"


def module_lines(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    yield f"module {name}"
    for public in sorted(names(module)):
        value = getattr(module, public)
        home = getattr(value, "__module__", None)
        if home in PUBLIC and home != name:
            yield f"    {public} = {home}.{public}"
        elif inspect.isclass(value):
            yield from class_lines(public, value)
        elif inspect.isroutine(value):
            yield f"    {call(public, value)}"
        else:
            yield f"    {public}: {type(value).__name__}"


def names(module: ModuleType) -> list[str]:
    """What `__all__` says, or else the classes and functions that are defined there."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isroutine(value))
        and value.__module__ == module.__name__
    ]


def class_lines(name: str, cls: type) -> Iterator[str]:
    """A class with its public parents, then its fields and members; a public parent's are listed there."""
    parents = ", ".join(base.__name__ for base in cls.__bases__ if is_public(base) and base is not object)
    yield f"    class {name}({parents})" if parents else f"    class {name}"
    found = members(cls)
    if abilities := [PROTOCOLS[special] for special in PROTOCOLS if special in found]:
        yield f"        use: {', '.join(abilities)}"
    if issubclass(cls, enum.Enum):
        yield from (f"        {member.name} = {member.value!r}" for member in cls)
    if fields := getattr(cls, "__match_args__", ()):
        yield from (f"        {field_text(cls, name)}" for name in fields)
    elif issubclass(cls, Exception) and "__init__" in found:
        yield f"        {call('__init__', found['__init__'])}"
    for attribute in attributes(found):
        yield f"        {attribute}: set by __init__"
    for member, value in sorted(found.items()):
        if not member.startswith("_"):
            yield from (f"        {text}" for text in member_text(member, value))


def is_public(cls: type) -> bool:
    return cls.__module__.split(".")[0] != "interlock" or (
        not cls.__name__.startswith("_")
        and not any(part.startswith("_") for part in cls.__module__.split("."))
    )


def members(cls: type) -> dict[str, Any]:
    """What interlock wrote for this class, here or in a parent that users do not see."""
    found: dict[str, Any] = {}
    listed = [base for base in cls.__bases__ if is_public(base)]
    for parent in reversed(cls.__mro__):
        if parent is cls or not (is_public(parent) or any(issubclass(base, parent) for base in listed)):
            found |= {name: value for name, value in vars(parent).items() if written(value)}
    return found


def attributes(found: dict[str, Any]) -> list[str]:
    """Public attributes that a class has only once it is made: errors carry their data so."""
    made = found.get("__init__")
    text = inspect.getsource(made) if inspect.isfunction(made) else ""
    return sorted(set(re.findall(r"self\.([a-z]\w*)(?:: [^=]+)? = ", text)))


def written(value: Any) -> bool:
    """Not compiled for a record: such methods say no more than the fields do."""
    return not inspect.isfunction(value) or (
        value.__code__.co_filename != "<string>" and value.__module__.split(".")[0] == "interlock"
    )


def member_text(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, property):
        yield f"{name}: {Text(inspect.signature(value.fget).return_annotation)}"  # type: ignore[arg-type]
    elif isinstance(value, classmethod | staticmethod):
        yield f"{type(value).__name__} {call(name, value.__func__)}"
    elif inspect.isfunction(value):
        yield call(name, value)


def field_text(cls: type, name: str) -> str:
    """A field of a record as it is written: its annotation, and its default if it has one."""
    kind = next(noted(parent)[name] for parent in cls.__mro__ if name in noted(parent))
    default = inspect.signature(cls).parameters[name].default
    return f"{name}: {kind}" if default is inspect.Parameter.empty else f"{name}: {kind} = {default!r}"


def noted(cls: type) -> dict[str, Any]:
    return dict(vars(cls).get("__annotations__", {}))


class Text:
    """An annotation, shown as it is written, without quotes around it."""

    def __init__(self, annotation: object) -> None:
        self.annotation = annotation

    def __repr__(self) -> str:
        return str(self.annotation)


def call(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    plain = [
        parameter
        if parameter.annotation is parameter.empty
        else parameter.replace(annotation=Text(parameter.annotation))
        for parameter in signature.parameters.values()
    ]
    answer = Text(signature.return_annotation)
    # By how it was written: from Python 3.12 on a plain function can be marked as a coroutine function.
    written = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    asynchronous = bool(getattr(function, "__code__", call.__code__).co_flags & written)
    kind = "async def" if asynchronous else "def"
    return f"{kind} {name}{signature.replace(parameters=plain, return_annotation=answer)}"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        REVIEWED.write_text(render(), encoding="utf-8")
        print(f"written: {REVIEWED.name}; review it with the change that caused it")
    else:
        print(render(), end="")
