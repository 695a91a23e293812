"""The page of each finding: what it means, what can happen, how to see it, and how to mend it."""

from __future__ import annotations

from difflib import get_close_matches
from importlib.resources import files

from interlock.errors import InterlockError


class UnknownFinding(InterlockError, ValueError):
    """No finding has this id; the sentence has the nearest."""

    def __init__(self, id: str) -> None:
        near = get_close_matches(id, ids(), n=1, cutoff=0.4)
        super().__init__(
            f"there is no finding {id!r}: "
            + (f"did you mean {near[0]}?" if near else f"use {', '.join(ids())}")
        )
        self.id = id


def ids() -> list[str]:
    """The ids that have a page, sorted."""
    return sorted(entry.name[:-3] for entry in files(__name__).iterdir() if entry.name.endswith(".md"))


def page(id: str) -> str:
    """The page of a finding, in Markdown."""
    if id not in ids():
        raise UnknownFinding(id)
    return (files(__name__) / f"{id}.md").read_text(encoding="utf-8")
