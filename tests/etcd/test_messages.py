"""The codec, the keys and the values, without a server."""

from __future__ import annotations

import pytest

from interlock.backends.etcd.algorithm.sessions import LADDER, step
from interlock.backends.etcd.wire import messages
from interlock.backends.etcd.wire.keys import Keys, unescaped
from interlock.backends.etcd.wire.protobuf import MalformedMessage, all_of, decode, integer, message, text
from interlock.backends.etcd.wire.values import register_read, register_value, settings


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**31, 2**63 - 1])
def test_integers_come_back(number: int) -> None:
    assert integer(decode(message((5, number), always=(5,))), 5) == number


def test_a_negative_integer_is_read() -> None:
    assert integer(decode(b"\x18" + b"\xff" * 9 + b"\x01"), 3) == -1


def test_zero_and_empty_are_left_out_unless_they_must_be_there() -> None:
    assert message((1, 0), (2, b"")) == b""
    assert message((1, 0), always=(1,)) == b"\x08\x00"


def test_repeated_fields_and_unknown_ones() -> None:
    found = decode(message((2, b"a"), (2, b"b"), (99, 7)) + b"\x0d\0\0\0\0")
    assert all_of(found, 2) == [b"a", b"b"]
    assert text(found, 2) == b"b"


@pytest.mark.parametrize("data", [b"\x08", b"\x12\x05ab", b"\xff" * 11, b"\x0b"])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(data)


def test_the_filter_for_deletions_is_sent_though_it_is_zero() -> None:
    """NOPUT is 0, and 1 hides exactly the event that is wanted."""
    request = decode(text(decode(messages.watch(4, b"k", only_deletions=True)), 1))
    assert text(request, 5) == b"\0"
    assert integer(request, 7) == 4
    assert 5 not in decode(text(decode(messages.watch(4, b"k")), 1))


NAMES = ["a", "a/b", "a%2Fb", "a%b", "%", "/", "a//b", "é/\U0001f512", "a0", "a\x1fwaiters", "a!"]


@pytest.mark.parametrize("name", NAMES)
def test_names_come_back_from_their_keys(name: str) -> None:
    keys = Keys("p/")
    found, behind = keys.resource_of(keys.claim(name, "id"))
    assert found == name
    assert behind == keys.folder(name)[1]


def test_no_resource_is_within_the_range_of_another() -> None:
    keys = Keys("p/")
    for name in NAMES:
        start, end = keys.folder(name)
        inside = [other for other in NAMES if start <= keys.claim(other, "id") < end]
        assert inside == [name]


def test_a_key_that_is_no_resources_is_known_as_such() -> None:
    assert unescaped(b"a%zz") is None
    assert unescaped(b"\xff") is None


def test_a_few_classes_carry_all_ttls() -> None:
    """`max_hold` and odd numbers must not make a lease each; the usual ttls are met exactly."""
    usual = (1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 3600.0, 7200.0, 86400.0)
    assert [step(ttl) for ttl in usual] == list(usual)
    assert step(0.1) == 1
    assert list(LADDER) == sorted(set(LADDER))
    assert len(LADDER) <= 50
    for tenths in range(10, 864000, 7):
        ttl = tenths / 10
        assert ttl <= step(ttl) < ttl * 4 / 3 + 1


@pytest.mark.parametrize(
    "value", [b"", b"theirs", b"{}", b'{"permits": "1", "capacity": 1}', b"{", b"[1, 2]", b"\xff{"]
)
def test_a_value_that_is_not_ours_is_a_strangers(value: bytes) -> None:
    assert settings(value) is None


@pytest.mark.parametrize("value", [None, "", "text", "=\n-", "\U0001f512"])
def test_registers_come_back(value: str | None) -> None:
    assert register_read(register_value("id", value)) == ("id", value)
