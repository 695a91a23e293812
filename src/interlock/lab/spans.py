"""Spans of time, and lists of them: cutting, joining and measuring. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TypeAlias

Span: TypeAlias = tuple[float, float]
Spans: TypeAlias = list[Span]


def intersect(left: Iterable[Span], right: Iterable[Span]) -> Spans:
    """What both cover. Linear in what is left after joining, because a soak has thousands of spans."""
    ours, others = union(left), union(right)
    found: Spans = []
    i = j = 0
    while i < len(ours) and j < len(others):
        start, end = max(ours[i][0], others[j][0]), min(ours[i][1], others[j][1])
        if end > start:
            found.append((start, end))
        if ours[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return found


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
    cuts = union(right)
    found: Spans = []
    for start, end in left:
        first = max(0, bisect_right(cuts, (start, start)) - 1)
        for cut_start, cut_end in cuts[first : bisect_right(cuts, (end, end))]:
            if cut_end <= start:
                continue
            if cut_start > start:
                found.append((start, min(cut_start, end)))
            start = max(start, cut_end)
        if end > start:
            found.append((start, end))
    return found


def total(spans: Iterable[Span]) -> float:
    """How many seconds they cover, if none of them overlap."""
    return sum(end - start for start, end in spans)


def covers(spans: Iterable[Span], time: float) -> bool:
    return any(start <= time <= end for start, end in spans)
