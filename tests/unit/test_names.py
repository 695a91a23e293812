"""Which names a resource may have: any printable text of up to 1 KB, and nothing else."""

from __future__ import annotations

import unicodedata
from enum import Enum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock._core.names import MAX_NAME_BYTES, checked_name, checked_words
from interlock.errors import InvalidName, InvalidSetting

printable = st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"])


@given(st.text(printable, min_size=1, max_size=256))
def test_printable_text_is_a_name_and_stays_as_it_is(name: str) -> None:
    assert checked_name(name) == name


@given(
    st.text(printable, max_size=20), st.characters(categories=["Cc", "Cs", "Zl", "Zp"]), st.text(printable)
)
def test_a_control_character_or_lone_surrogate_anywhere_is_refused(before: str, bad: str, after: str) -> None:
    with pytest.raises(InvalidName, match=f"at position {len(before)} "):
        checked_name(before + bad + after)


@pytest.mark.parametrize("letter", ["x", "é", "日", "🔒"])
def test_a_name_has_1024_bytes_and_not_one_more(letter: str) -> None:
    size = len(letter.encode())
    fits = letter * (MAX_NAME_BYTES // size) + "x" * (MAX_NAME_BYTES % size)
    assert checked_name(fits) == fits
    with pytest.raises(InvalidName, match="not 1025"):
        checked_name(fits + "x")


def test_names_that_look_alike_stay_different() -> None:
    composed, decomposed = "é", unicodedata.normalize("NFD", "é")
    assert checked_name(composed) != checked_name(decomposed)


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(InvalidName, match="empty"):
        checked_name("")


@pytest.mark.parametrize("name", [None, 7, b"x", ["x"], 1.5])
def test_what_is_no_text_is_a_type_error(name: Any) -> None:
    with pytest.raises(TypeError, match="a resource is named by a str, not"):
        checked_name(name)


def test_a_message_never_carries_what_cannot_be_printed() -> None:
    with pytest.raises(InvalidName) as refusal:
        checked_name("\ud800" + "x" * 2000)
    str(refusal.value).encode()
    assert len(str(refusal.value)) < 200


def test_a_subclass_of_str_does_not_decide_who_shares_a_lock() -> None:
    class Sly(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = str.__hash__

    assert type(checked_name(Sly("x"))) is str


class Job(str, Enum):  # noqa: UP042 - StrEnum has a `__str__` of its own, and is what this is about
    REPORT = "report"


class Other(StrEnum):
    REPORT = "report"


@pytest.mark.parametrize("member", [Job.REPORT, Other.REPORT])
def test_a_member_of_an_enumeration_names_what_its_value_names(member: str) -> None:
    assert (checked_name(member), checked_words(member, "a note")) == ("report", "report")


def test_a_subclass_of_str_does_not_decide_how_long_a_name_may_be() -> None:
    class Short(str):
        __slots__ = ()

        def __len__(self) -> int:
            return 1

        def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
            return b"x"

        def isprintable(self) -> bool:
            return True

    with pytest.raises(InvalidName, match="not 2000"):
        checked_name(Short("x" * 2000))
    with pytest.raises(InvalidSetting, match="bytes"):
        checked_words(Short("x" * 5000), "a note")


@pytest.mark.parametrize("words", ["x" * 4097, "é" * 2049, "a\x00b", "\ud800"])
def test_words_no_store_could_keep_are_refused(words: str) -> None:
    with pytest.raises(InvalidSetting, match="a reason"):
        checked_words(words, "a reason")
