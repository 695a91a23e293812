"""The public surface changes only on purpose: it equals the reviewed file."""

from __future__ import annotations

import difflib

from tests.house.surface import REVIEWED, render


def test_the_public_surface_is_the_reviewed_one() -> None:
    reviewed = REVIEWED.read_text(encoding="utf-8").splitlines()
    difference = list(
        difflib.unified_diff(reviewed, render().splitlines(), "reviewed", "found", lineterm="", n=1)
    )
    assert not difference, "\n".join(
        ["the public surface changed; if that is meant: python3 dev.py surface", *difference]
    )
