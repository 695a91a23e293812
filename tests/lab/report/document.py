"""A page of the report as its parts: which elements it has, which ids, which addresses."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "input"}


class Document(HTMLParser):
    """Reads HTML, and notes elements that are not closed as they were opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.unclosed: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        self.unclosed += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.unclosed.append(tag)

    def all(self, tag: str, kind: str = "") -> list[dict[str, str]]:
        """The attributes of all elements of this name, and of this class if one is given."""
        return [
            said for name, said in self.elements
            if name == tag and (not kind or kind in said.get("class", "").split())
        ]  # fmt: skip

    @property
    def ids(self) -> list[str]:
        return [said["id"] for _, said in self.elements if "id" in said]
