"""Spans of time, and lists of them: cutting, joining and measuring. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Span: TypeAlias = tuple[float, float]
Spans: TypeAlias = list[Span]


def intersect(left: Iterable[Span], right: Iterable[Span]) -> Spans:
    """What both cover."""
    others = list(right)
    found = [(max(a, c), min(b, d)) for a, b in left for c, d in others]
    return sorted((a, b) for a, b in found if b > a)


def union(*many: Iterable[Span]) -> Spans:
    """What any of them covers, in order; spans that touch become one."""
    merged: Spans = []
    for start, end in sorted(span for spans in many for span in spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def subtract(left: Iterable[Span], right: Iterable[Span]) -> Spans:
    """What the first cover and the second do not."""
    rest = list(left)
    for start, end in right:
        parts = [part for a, b in rest for part in ((a, min(b, start)), (max(a, end), b))]
        rest = [(a, b) for a, b in parts if b > a]
    return rest


def total(spans: Iterable[Span]) -> float:
    """How many seconds they cover, if none of them overlap."""
    return sum(end - start for start, end in spans)


def covers(spans: Iterable[Span], time: float) -> bool:
    return any(start <= time <= end for start, end in spans)
