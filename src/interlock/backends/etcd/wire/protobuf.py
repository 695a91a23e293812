"""The part of protobuf that etcd's messages need: varints and length-delimited fields.

A message is a sequence of fields, each a number with an integer or bytes. There are no generated classes, so
nothing here can clash with another etcd client in the same process.
"""

from __future__ import annotations

from typing import TypeAlias

from interlock.errors import StoreUnfit

Value: TypeAlias = "int | bytes"
Fields: TypeAlias = "dict[int, list[Value]]"

MAX_FIELDS = 1 << 19  # of one message: each takes many times the bytes that it has on the wire
MASK_64 = (1 << 64) - 1

_SHORT = [bytes((n,)) for n in range(128)]


class MalformedMessage(StoreUnfit):
    """The bytes are no message of protobuf, or not one that etcd would send.

    `why` says what is wrong with them.
    """

    def __init__(self, why: str) -> None:
        super().__init__(
            f"an answer cannot be read ({why}); is this an etcd v3 server, with nothing before it that "
            "changes its answers?"
        )
        self.why = why


def varint(number: int) -> bytes:
    if number < 128:
        return _SHORT[number]
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def message(*fields: tuple[int, Value], always: tuple[int, ...] = ()) -> bytes:
    """Encode a message.

    Zero and empty fields are left out, as proto3 does, unless their number is in `always`.
    """
    out: list[bytes] = []
    for number, value in fields:
        if not value and number not in always:
            continue
        tag = number << 3 if isinstance(value, int) else number << 3 | 2
        size = value if isinstance(value, int) else len(value)
        # Nearly all numbers are short, and a call for each would cost more than all the rest.
        out.append(_SHORT[tag] if tag < 128 else varint(tag))
        out.append(_SHORT[size] if size < 128 else varint(size))
        if not isinstance(value, int):
            out.append(value)
    return b"".join(out)


def _varint_at(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
        if shift > 63:
            raise MalformedMessage("a varint is too long")


def decode(data: bytes) -> Fields:
    """Decode a message into its fields; numbers that nobody asked for are kept and harmless."""
    found: Fields = {}
    at, end = 0, len(data)
    try:
        for _ in range(MAX_FIELDS):
            if at >= end:
                return found
            tag, at = (data[at], at + 1) if data[at] < 128 else _varint_at(data, at)
            kind = tag & 7
            value: Value
            if kind == 0:
                value, at = (data[at], at + 1) if data[at] < 128 else _varint_at(data, at)
            elif kind == 2:
                size, at = (data[at], at + 1) if data[at] < 128 else _varint_at(data, at)
                value, at = data[at : at + size], at + size
            elif kind in (1, 5):  # fixed width: no field that is read here has it
                size = 8 if kind == 1 else 4
                value, at = data[at : at + size], at + size
            else:
                raise MalformedMessage(f"wire type {kind}")
            if at > end:
                raise MalformedMessage("a field is cut off")
            found.setdefault(tag >> 3, []).append(value)
    except IndexError:
        raise MalformedMessage("the message is cut off") from None
    raise MalformedMessage("it has too many fields")


def integer(fields: Fields, number: int) -> int:
    """An integer field as a signed 64-bit number; 0 if it is absent."""
    values = fields.get(number)
    if values is None:
        return 0
    value = values[-1]
    if not isinstance(value, int):
        raise MalformedMessage(f"field {number} is no integer")
    return value if value < 1 << 63 else (value & MASK_64) - ((value & 1 << 63) << 1)


def text(fields: Fields, number: int) -> bytes:
    """A field of bytes; empty if it is absent."""
    values = fields.get(number)
    if values is None:
        return b""
    value = values[-1]
    if isinstance(value, int):
        raise MalformedMessage(f"field {number} is no bytes")
    return value


def all_of(fields: Fields, number: int) -> list[bytes]:
    """All values of a repeated field of bytes."""
    return [value for value in fields.get(number, ()) if isinstance(value, bytes)]
