"""Aligned columns, cut to the width of a terminal. Pure."""

from __future__ import annotations

from collections.abc import Sequence

GAP = "  "
NARROWEST = 12  # a column is not cut below this: what is left would say nothing


def columns(text: str) -> int:
    """How many columns a terminal takes for it: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(c) or c in "\u200d\ufe0e\ufe0f" else 2 if east_asian_width(c) in "WF" else 1
        for c in text
    )


def cut(text: str, width: int) -> str:
    """The text in at most `width` columns: its middle gives way, for names differ at their ends."""
    if columns(text) <= width:
        return text
    left, right = width // 2, (width - 1) // 2
    return _fitting(text, left) + "…" + _fitting(text[::-1], right)[::-1]


def _fitting(text: str, width: int) -> str:
    end = len(text)
    while columns(text[:end]) > width:
        end -= 1
    return text[:end]


def widths(rows: Sequence[Sequence[str]], width: int | None) -> list[int]:
    """How wide each column is; the widest give way, one column at a time, until all fit into `width`."""
    wide = [max(map(columns, cells)) for cells in zip(*rows, strict=True)]
    if width is not None:
        gaps = len(GAP) * (len(wide) - 1)
        while sum(wide) + gaps > width and max(wide) > NARROWEST:
            wide[wide.index(max(wide))] -= 1
    return wide


def lines(rows: Sequence[Sequence[str]], width: int | None = None) -> list[list[str]]:
    """The rows with every cell padded to its column, and cut to fit; columns that nobody fills stay empty."""
    if not rows:
        return []
    wide = widths(rows, width)
    return [
        [
            (shown := cut(cell, size)) + " " * (size - columns(shown))
            for cell, size in zip(row, wide, strict=True)
        ]
        for row in rows
    ]
