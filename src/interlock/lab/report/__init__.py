"""The report of the lab: one HTML page, the histories that it was made from, and figures for other pages."""

from __future__ import annotations

from interlock.lab.report.figure import drawn, figure, storm_figure
from interlock.lab.report.history import BrokenHistory, Kept, read_history, write_history
from interlock.lab.report.page import write_report

__all__ = [
    "BrokenHistory",
    "Kept",
    "drawn",
    "figure",
    "read_history",
    "storm_figure",
    "write_history",
    "write_report",
]
