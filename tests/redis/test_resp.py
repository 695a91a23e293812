"""Replies are parsed alike with and without hiredis, however they are cut into pieces."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.backends.redis.wire.resp import (
    MALFORMED,
    MAX_ITEMS,
    ErrorReply,
    PlainReader,
    ProtocolError,
    Reader,
    command,
    reader,
)

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


def encoded(reply: Any) -> bytes:
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    return b"*%d\r\n" % len(reply) + b"".join([encoded(item) for item in reply])


def all_of(source: Reader, data: bytes, cuts: list[int]) -> list[Any]:
    got: list[Any] = []
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in pairwise(edges):
        source.feed(data[start:end])
        while (reply := source.gets()) is not False:
            got.append(reply)
    return got


# Text that looks like the head of a long array: within a string it is text.
HEADS = st.sampled_from(
    [b"*99999999\r\n", b"\r\n*1234567", b"*100000", b"*", b"~999999999", b"$5\r\n*", b">1000000\r\n:1\r\n"]
)
REPLIES_OF_ANY_SHAPE = st.recursive(
    st.none() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=20) | HEADS,
    lambda inner: st.lists(inner, max_size=6),
    max_leaves=20,
)
CUTS = st.lists(st.integers(0, 10_000), max_size=12)


@pytest.mark.parametrize("make", [PlainReader, reader])
@settings(max_examples=150, deadline=None)
@given(st.lists(REPLIES_OF_ANY_SHAPE, max_size=6), CUTS)
def test_every_reply_is_read_whatever_its_text_looks_like(
    make: Any, replies: list[Any], cuts: list[int]
) -> None:
    assert all_of(make(), b"".join([encoded(reply) for reply in replies]), cuts) == replies


PIECES = st.sampled_from(
    [
        b"*",
        b"$",
        b":",
        b"+",
        b"-",
        b"~",
        b">",
        b"%",
        b"|",
        b"#",
        b",",
        b"(",
        b"=",
        b"_",
        b"\r\n",
        b"-1",
        b"0",
        b"3",
        b"1000000",
    ]
) | st.binary(max_size=6)


@pytest.mark.parametrize("make", [PlainReader, reader])
@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=60), CUTS)
def test_no_bytes_at_all_raise_anything_unforeseen(make: Any, pieces: list[bytes], cuts: list[int]) -> None:
    try:
        all_of(make(), b"".join(pieces), cuts)
    except MALFORMED:
        pass


@pytest.mark.parametrize("make", [PlainReader, reader])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_long_array_is_read_and_a_longer_one_refused_before_it_is_made(make: Any, size: int) -> None:
    whole = b":7\r\n" + encoded([1] * 150_000) + b":8\r\n"
    if size > 3:
        assert all_of(make(), whole, list(range(0, len(whole), size))) == [7, [1] * 150_000, 8]
    head = b":7\r\n*2\r\n:1\r\n*%d\r\n" % (MAX_ITEMS + 1)
    with pytest.raises(ProtocolError):
        all_of(make(), head, list(range(0, len(head), size)))
