"""A text in the two languages that the lab speaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")


@dataclass(frozen=True, slots=True)
class Text:
    """The same sentences in English and in Chinese."""

    en: str
    zh: str

    def in_language(self, language: Language) -> str:
        return self.zh if language == "zh" else self.en

    def filled(self, **values: object) -> Text:
        """The text with its `{names}` replaced in both languages."""
        return Text(self.en.format(**values), self.zh.format(**values))

    def __add__(self, other: Text) -> Text:
        """Both texts, one after the other; English puts a space between them."""
        return Text(f"{self.en} {other.en}".strip(), f"{self.zh}{other.zh}")
