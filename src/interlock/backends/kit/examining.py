"""Collects what an examination of servers finds, within one deadline.

An answer that does not come is a finding, too: its severity is `unknown`, and its text says why.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from interlock.backends.kit.deadline import Deadline
from interlock.errors import InterlockError
from interlock.model import Answer, Examination, Finding, Outlook, Severity

T = TypeVar("T")

QUESTION_S = 3.0  # seconds that one question may take, so that a server that hangs leaves time for the others


class Examiner:
    """The findings so far, and the time that is left for more."""

    def __init__(self, now: Callable[[], float], timeout: float) -> None:
        self.deadline = Deadline(now, timeout)
        self._findings: list[Finding] = []
        self._outlooks: list[Outlook] = []
        self._answered, self._silence = False, ""

    def add(self, id: str, severity: Severity, text: str, remedy: str = "", server: str = "") -> None:
        """Note a finding."""
        self._findings.append(Finding(id, severity, text, remedy, server))

    def extend(self, findings: Sequence[Finding]) -> None:
        """Note several."""
        self._findings += findings

    def expect(self, failure: str, tokens_rise: Answer, one_holder: Answer, blocked: str) -> None:
        """Note what a failure would do."""
        self._outlooks.append(Outlook(failure, tokens_rise, one_holder, blocked))

    async def answer(
        self, question: Callable[[float], Awaitable[T]], *ids: str, server: str = ""
    ) -> T | None:
        """Ask within a part of the time that is left; without an answer, these checks are unknown."""
        try:
            found = await question(self.deadline.for_request(QUESTION_S))
        except InterlockError as error:
            self._silence = self._silence or str(error)
            for id in ids:
                self.add(id, "unknown", f"the server did not tell: {error}", server=server)
            return None
        self._answered = True
        return found

    def result(self) -> Examination:
        """Everything that was found."""
        silence = "" if self._answered else self._silence
        return Examination(tuple(self._findings), tuple(self._outlooks), silence)
