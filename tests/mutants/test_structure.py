"""A mutant finds its place by structure: other comments, lines and names do not hide it, and what is not unique is refused."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from tests.mutants.structure import edited

SOURCE = """
    class Queue:
        def enter(self, claim, now):
            # Dead claims go first.
            self.rows = [row for row in self.rows
                         if row.lapses > now]
            if self.full(claim):
                return None
            else:
                self.log(claim)
            return self.add(claim)

        def leave(self, claim):
            try:
                self.rows.remove(claim)
            except ValueError:
                return False
            finally:
                self.wake()
            return True
"""


def changed(within: str, old: str, new: str, source: str = SOURCE) -> str:
    return edited(dedent(source), within, old, new)


def same(code: str, other: str) -> bool:
    return ast.dump(ast.parse(code)) == ast.dump(ast.parse(dedent(other)))


def test_format_and_comments_do_not_matter() -> None:
    expected = SOURCE.replace("row.lapses > now", "True")
    assert same(changed("Queue.enter", "row.lapses > now", "True"), expected)
    whole = "self.rows = [row for row in self.rows if row.lapses > now]"
    assert same(changed("Queue.enter", whole, whole.replace("row.lapses > now", "True")), expected)


def test_names_may_have_changed_since_the_pattern_was_written() -> None:
    renamed = SOURCE.replace("row", "entry").replace("enter", "come_in").replace("lapses", "ends_at")
    assert same(
        changed("Queue.enter", "row.lapses > now", "row.lapses >= now + 1", renamed),
        renamed.replace("> now", ">= now + 1"),
    )


def test_two_names_never_stand_for_one() -> None:
    with pytest.raises(LookupError, match="fits 0 places"):
        changed("Queue.enter", "one.log(two, one)", "pass", SOURCE.replace("log(claim)", "log(claim, now)"))


def test_an_open_body_is_kept_with_all_that_follows_it() -> None:
    assert same(
        changed("Queue.enter", "if self.full(claim): ...", "if False: ..."),
        SOURCE.replace("self.full(claim)", "False"),
    )
    assert same(
        changed("Queue.leave", "try: ...\nexcept ValueError: ...", "try: ...\nexcept KeyError: ..."),
        SOURCE.replace("ValueError", "KeyError"),
    )


def test_a_statement_is_removed() -> None:
    assert "wake" not in changed("Queue.leave", "self.wake()", "")
    handler = "try:\n    ...\nexcept ValueError:\n    return False\nfinally:\n    ..."
    without = changed("Queue.leave", handler, "try:\n    ...\nfinally:\n    ...")
    assert "except" not in without
    assert "finally" in without


def test_a_pattern_that_fits_twice_or_never_is_refused() -> None:
    with pytest.raises(LookupError, match="fits 2 places"):
        changed("Queue.enter", "self.rows", "self.others")
    with pytest.raises(LookupError, match="fits 0 places"):
        changed("Queue.enter", "while claim: ...", "pass")
