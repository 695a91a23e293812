"""The part of RESP2 that a lock needs: requests as bytes; replies as bytes, ints, lists, None and `ErrorReply`."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol


class ErrorReply(Exception):
    """An error reply; `code` is its first word, such as NOSCRIPT."""

    @property
    def text(self) -> str:
        return str(self.args[0]) if self.args else ""

    @property
    def code(self) -> str:
        return self.text.partition(" ")[0]


class ProtocolError(Exception):
    """The data is not RESP, so the connection cannot be trusted any more."""


class Reader(Protocol):
    """Takes bytes as they arrive; returns replies, or False while the next one is incomplete."""

    def feed(self, data: bytes, /) -> object: ...
    def gets(self) -> Any: ...


def bulk(part: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(part), part)


def command(*parts: bytes) -> bytes:
    return b"*%d\r\n" % len(parts) + b"".join([bulk(part) for part in parts])


class PlainReader:
    """The reader for programs without hiredis."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes, /) -> None:
        self._data += data

    def gets(self) -> Any:
        try:
            reply, end = self._parse(0)
        except _Incomplete:
            return False
        self._data = self._data[end:]
        return reply

    def _parse(self, start: int) -> tuple[Any, int]:
        data = self._data
        end = data.find(b"\r\n", start)
        if end < 0:
            raise _Incomplete
        kind, line, after = data[start : start + 1], data[start + 1 : end], end + 2
        if kind == b"+":
            return line, after
        if kind == b"-":
            return ErrorReply(line.decode(errors="replace")), after
        try:
            number = int(line)
        except ValueError:
            number = -2
        if kind == b":" and line:
            return number, after
        if kind not in (b"$", b"*") or number < -1:
            raise ProtocolError(f"not a reply of Redis: {data[start : start + 40]!r}")
        if number == -1:
            return None, after
        if kind == b"$":
            if len(data) < after + number + 2:
                raise _Incomplete
            return data[after : after + number], after + number + 2
        items: list[Any] = []
        for _ in range(number):
            item, after = self._parse(after)
            items.append(item)
        return items, after


class _Incomplete(Exception):
    pass


def _find_reader() -> Any:
    try:
        hiredis = import_module("hiredis")
    except ImportError:
        return PlainReader
    return lambda: hiredis.Reader(protocolError=ProtocolError, replyError=ErrorReply)


_make: Any = None


def reader() -> Reader:
    """A new reader: that of hiredis if it is installed."""
    global _make
    if _make is None:
        _make = _find_reader()
    made: Reader = _make()
    return made
