"""Draws docs/performance.svg from the first two tables of docs/performance.md: `python -m benchmarks.chart`."""

from __future__ import annotations

import math
import re
from html import escape
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
UNITS = {"µs": 1e-6, "ms": 1e-3}
LEFT, TOP, ROW, WIDTH = 150, 64, 34, 760
SCALE = [(1e-5, "10 µs"), (1e-4, "0.1 ms"), (1e-3, "1 ms"), (1e-2, "10 ms")]
STYLE = """
    text { font: 14px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2933; }
    .head { font-weight: 600; } .small { font-size: 12px; fill: #52606d; }
    .grid { stroke: #cbd2d9; } .link { stroke: #9aa5b1; stroke-width: 3; }
    .pair { fill: #1f7a4d; } .handoff { fill: #fff; stroke: #b45309; stroke-width: 3; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e4e7eb; } .small { fill: #b8c2cc; } .grid { stroke: #3e4c59; } .link { stroke: #7b8794; }
      .pair { fill: #5fd39a; } .handoff { fill: #1f2933; stroke: #f0b429; }
    }
"""


def times(heading: str) -> dict[str, float]:
    """The first figure of each row of the table below a heading, in seconds, by store."""
    section = PAGE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    found: dict[str, float] = {}
    for store, figure, unit in re.findall(r"^\| ([^|]+?) \| ([\d.]+) (µs|ms)", section, re.MULTILINE):
        found[store.partition(",")[0] if "tasks" not in store else store] = float(figure) * UNITS[unit]
    return found


def across(seconds: float) -> float:
    """Where a time stands on the logarithmic scale."""
    first, last = math.log10(SCALE[0][0] / 2), math.log10(SCALE[-1][0] * 2.5)
    return LEFT + (math.log10(seconds) - first) / (last - first) * (WIDTH - LEFT - 30)


def drawn() -> str:
    pairs, handoffs = (
        times("How long does a lock take on my store?"),
        times("How long until the next waiter has it?"),
    )
    stores = [store for store in pairs if store in handoffs]
    bottom = TOP + ROW * len(stores)
    told = "; ".join(f"{s}: {pairs[s] * 1e3:g} ms and {handoffs[s] * 1e3:g} ms" for s in stores)
    rows = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 40}" role="img" aria-labelledby="t d">',
        '  <title id="t">How long a lock and a hand-off take on each store</title>',
        f'  <desc id="d">A lock, and a hand-off to a waiter: {escape(told)}.</desc>',
        f"  <style>{STYLE}  </style>",
        f'  <circle class="pair" cx="{LEFT}" cy="26" r="7"/>',
        f'  <text class="head" x="{LEFT + 14}" y="31">acquire and release</text>',
        f'  <rect class="handoff" x="{LEFT + 195}" y="20" width="12" height="12"/>',
        f'  <text class="head" x="{LEFT + 215}" y="31">until the next waiter has it</text>',
    ]
    for seconds, name in SCALE:
        x = across(seconds)
        rows.append(f'  <line class="grid" x1="{x:.1f}" y1="{TOP - 14}" x2="{x:.1f}" y2="{bottom}"/>')
        rows.append(f'  <text class="small" x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{name}</text>')
    for number, store in enumerate(stores):
        y, pair, handoff = TOP + ROW * number + 6, across(pairs[store]), across(handoffs[store])
        rows += [
            f'  <text x="{LEFT - 14}" y="{y + 5}" text-anchor="end">{escape(store)}</text>',
            f'  <line class="link" x1="{pair:.1f}" y1="{y}" x2="{handoff:.1f}" y2="{y}"/>',
            f'  <rect class="handoff" x="{handoff - 6:.1f}" y="{y - 6}" width="12" height="12"/>',
            f'  <circle class="pair" cx="{pair:.1f}" cy="{y}" r="7"/>',
        ]
    return "\n".join([*rows, "</svg>\n"])


if __name__ == "__main__":
    PAGE.with_suffix(".svg").write_text(drawn(), encoding="utf-8")
