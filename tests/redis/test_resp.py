"""Replies are parsed alike with and without hiredis, however they are cut into pieces."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.backends.redis.wire.resp import ErrorReply, PlainReader, ProtocolError, Reader, command, reader

STREAM = b"+OK\r\n:-7\r\n$3\r\na\r\n\r\n$-1\r\n*3\r\n:1\r\n*0\r\n*2\r\n$0\r\n\r\n$-1\r\n*-1\r\n-NOSCRIPT no such\r\n"
REPLIES = [b"OK", -7, b"a\r\n", None, [1, [], [b"", None]], None]


def read(source: Reader, size: int) -> list[Any]:
    replies: list[Any] = []
    for start in range(0, len(STREAM), size):
        source.feed(STREAM[start : start + size])
        while (reply := source.gets()) is not False:
            replies.append(reply)
    return replies


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("make", [PlainReader, reader])
def test_replies_are_read_however_they_are_cut(make: Any, size: int) -> None:
    *replies, failure = read(make(), size)
    assert replies == REPLIES
    assert isinstance(failure, ErrorReply)
    assert (failure.code, failure.text) == ("NOSCRIPT", "NOSCRIPT no such")


@pytest.mark.parametrize("make", [PlainReader, reader])
def test_what_is_no_reply_is_refused(make: Any) -> None:
    source = make()
    with pytest.raises(ProtocolError):
        source.feed(b"HTTP/1.1 400 Bad Request\r\n")
        source.gets()


def test_requests_are_arrays_of_strings() -> None:
    assert command(b"GET", b"x\r\n") == b"*2\r\n$3\r\nGET\r\n$3\r\nx\r\n\r\n"
