"""The result of a diagnosis, as data, and the sentences that are made from it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interlock._support.record import record
from interlock._support.wording import either
from interlock.model import Finding, Outlook, Severity

SEVERITIES: tuple[Severity, ...] = ("danger", "warning", "note", "unknown", "good")
"""The worst first."""


def worse_or_equal(severity: Severity, level: Severity) -> bool:
    """Whether a finding is at or above a level."""
    return SEVERITIES.index(severity) <= SEVERITIES.index(level)


@record
class Health:
    """Whether a store answers: for readiness probes."""

    ok: bool
    seconds: float  # that the question took
    why: str = ""  # one sentence, if it is not

    def __bool__(self) -> bool:
        return self.ok


@record
class Probe:
    """What was measured on one lock under a reserved name."""

    acquire: float  # seconds for the first lock, connections included
    renewal_p50: float  # seconds
    renewal_p99: float
    handover: float | None  # seconds from a release to the grant of the next waiter; None: it was not granted
    woken: bool  # whether a message woke the waiter; False: it would have had to poll


@record
class Diagnosis:
    """What a deployment promises now."""

    store: str  # its name for people, without passwords
    findings: tuple[Finding, ...]  # the worst first
    outlooks: tuple[Outlook, ...] = ()
    probe: Probe | None = None
    unreachable: str = ""  # why nothing could be looked at, in one sentence

    @property
    def worst(self) -> Severity:
        """The severity of the worst finding; `good` without any."""
        return self.findings[0].severity if self.findings else "good"

    def at_least(self, level: Severity) -> list[Finding]:
        """The findings at or above a level, such as "warning"."""
        return [finding for finding in self.findings if worse_or_equal(finding.severity, level)]

    def without(self, ignored: Sequence[str]) -> Diagnosis:
        """The same without the findings of these ids."""
        kept = tuple(finding for finding in self.findings if finding.id not in ignored)
        return Diagnosis(self.store, kept, self.outlooks, self.probe, self.unreachable)

    @property
    def headline(self) -> str:
        """The answer in one sentence: when two clients may hold one lock at once."""
        if self.unreachable:
            return f"nothing could be looked at: {self.unreachable}"
        failures = [outlook.failure for outlook in self.outlooks if outlook.one_holder == "no"]
        unsure = [outlook.failure for outlook in self.outlooks if outlook.one_holder == "unknown"]
        if failures:
            said = f"With this deployment two holders are possible when {either(failures)}"
        elif unsure:
            said = "With this deployment no failure is known to give two holders"
        elif self.outlooks:
            return "With this deployment no failure in the table below gives two holders."
        else:
            return "Nothing is known of this deployment but the traits of its store."
        return f"{said}, and perhaps when {either(unsure)}." if unsure else f"{said}."

    @property
    def summary(self) -> str:
        """How many findings there are of each severity."""
        counts = {name: sum(one.severity == name for one in self.findings) for name in SEVERITIES}
        shown = [f"{count} {name}" for name, count in counts.items() if count]
        return ", ".join(shown) if shown else "nothing to report"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "store": self.store,
            "worst": self.worst,
            "headline": self.headline,
            "unreachable": self.unreachable,
            "findings": [_plain(finding) for finding in self.findings],
            "outlooks": [_plain(outlook) for outlook in self.outlooks],
            "probe": None if self.probe is None else _plain(self.probe),
        }


def _plain(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__match_args__}


def ordered(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The worst first; those of one severity in the order in which they were found."""
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))
