"""All that is searched, by name, with the bounds for every day and those on demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from interlock.lab.model.beginnings import BEGINNINGS, Beginning, Beginnings
from interlock.lab.model.leases import CUSTOMS, Custom, Leases
from interlock.lab.model.numbers import Numbers
from interlock.lab.model.search import Finding, search
from interlock.lab.model.variants import BROKEN, SHIPPED, Variant


@dataclass(frozen=True, slots=True)
class Case:
    """One model and the verdict it deserves."""

    name: str
    text: str
    guilty: bool
    search: Callable[[bool], Finding]  # True: with the bounds on demand

    def wrong(self, finding: Finding) -> str:
        """Why the finding is not the one it should be; "" when it is."""
        if self.guilty:
            return "" if finding.crime else f"{self.name} ({self.text}) should be found broken: {finding}"
        if finding.crime or not finding.complete:
            return f"{self.name} ({self.text}) should be found safe: {finding}"
        return ""


def _numbers(variant: Variant) -> Case:
    def look(deep: bool) -> Finding:
        nodes, top = variant.deep if deep else (variant.nodes, variant.top)
        return search(Numbers(variant, nodes, top))

    return Case(variant.name, variant.text, variant.guilty, look)


def _leases(custom: Custom) -> Case:
    def look(deep: bool) -> Finding:
        return search(Leases(custom, custom.deep if deep else custom.nodes))

    return Case(custom.name, custom.text, custom.guilty, look)


def _beginnings(way: Beginning) -> Case:
    def look(deep: bool) -> Finding:
        return search(Beginnings(way.rule, any_time=deep))

    return Case(way.name, way.text, way.guilty, look)


CASES = [
    *map(_numbers, SHIPPED),
    *map(_numbers, BROKEN),
    *map(_leases, CUSTOMS),
    *map(_beginnings, BEGINNINGS),
]
