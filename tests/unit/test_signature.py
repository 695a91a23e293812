"""A note that is no signature of ours leaves a standing as it is, whoever wrote it."""

from __future__ import annotations

import pytest

from interlock._core.signature import as_present_holder, signature
from interlock.model import Standing


def standing(note: str) -> Standing:
    return Standing("id", 5, 1, True, 0.0, 1.0, note=note, who='["first", 1, "", ""]')


def test_a_signature_names_the_present_holder() -> None:
    shown = as_present_holder(standing(signature(7, '["heir", 2, "", ""]')))
    assert (shown.token, shown.who, shown.note) == (7, '["heir", 2, "", ""]', "")


@pytest.mark.parametrize(
    "note",
    ["", "me", "\x1f", "\x1f7", "\x1fseven\x1fwho", "\x1f\x1fwho", "\x1f-1\x1f", f"\x1f{'9' * 5000}\x1f"],
)
def test_anything_else_is_shown_as_it_is(note: str) -> None:
    """It raised ValueError in `inspect`, `evict` and `acquire` of everybody who met that claim."""
    assert as_present_holder(standing(note)) == standing(note)
