"""A cheap substitute for `dataclasses`, so that `import interlock` stays fast.

The standard module imports `inspect` and compiles six functions for each class: for our thirty records that
would add 20 ms to the start of every program. This one compiles one function for each class. Type checkers
see frozen dataclasses.
"""

from __future__ import annotations

from typing import Any, TypeVar, dataclass_transform

C = TypeVar("C")


class _Record:
    """The base class of all records.

    Fields are compared, hashed and shown in the order of their definition.
    """

    __slots__ = ()
    __match_args__: tuple[str, ...] = ()

    def _values(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self.__match_args__])

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, _Record)
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__name__}({shown})"


@dataclass_transform(frozen_default=True)
def record(cls: type[C]) -> type[C]:
    """Turn a class with annotated fields into one with `__slots__`, a constructor, equality, hash and
    repr.
    """
    annotations = cls.__dict__.get("__annotations__", {})  # noqa: RUF063 - inspect is what we avoid
    own = [name for name, kind in annotations.items() if "ClassVar" not in kind]
    defaults = {name: cls.__dict__[name] for name in own if name in cls.__dict__}
    parameters = [f"{name}=_defaults[{name!r}]" if name in defaults else name for name in own]
    lines = [f"    self.{name} = {name}" for name in own] or ["    pass"]
    # By its module's name `shutdown` recognises a constructor as ours, since its code stands in no file.
    scope: dict[str, Any] = {"_defaults": defaults, "__name__": __name__}
    exec("\n".join([f"def __init__({', '.join(['self', *parameters])}):", *lines]), scope)
    body = {
        name: value for name, value in cls.__dict__.items() if name not in (*own, "__dict__", "__weakref__")
    }
    body.update(__slots__=tuple(own), __match_args__=tuple(own), __init__=scope["__init__"])
    bases = tuple(base for base in cls.__bases__ if base is not object) or (_Record,)
    made: Any = type(cls.__name__, bases, body)
    return made  # type: ignore[no-any-return]


def replaced(original: C, **changes: Any) -> C:
    """Return a copy of a record with some fields changed."""
    assert isinstance(original, _Record)
    fields = {name: getattr(original, name) for name in original.__match_args__}
    return type(original)(**{**fields, **changes})
