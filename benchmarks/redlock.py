"""Questions for Redlock."""

from __future__ import annotations

from benchmarks.question import Question


def questions() -> list[Question]:
    return []
