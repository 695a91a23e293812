"""Turns claims and renewals into the bytes of requests, and replies into answers.

The scripts' headers list the fields.
"""

from __future__ import annotations

import re
from typing import Any

from interlock.backends.redis.errors import reply_error
from interlock.backends.redis.wire.keys import Keys
from interlock.backends.redis.wire.resp import ErrorReply, bulk
from interlock.errors import ForeignKey, SettingsMismatch
from interlock.model import (
    NEVER,
    Busy,
    Claim,
    ClaimAnswer,
    Gone,
    Granted,
    NoAnswer,
    Queue,
    Renewal,
    RenewAnswer,
    Renewed,
    Standing,
    Versioned,
)

RECORD = re.compile(rb"(\d+)\n(\d+)\n(\d+)\n(\d+)\n([^\n]*)\n(\d+)\n(.*)", re.DOTALL)
RECORD_START = re.compile(rb"[^\n]*\n\d+\n\d+\n\d+\n\d+\n[^\n]*\n")
"""How the value of a holder's key begins if interlock wrote it."""

MAX_SETTINGS_CACHED = 1000  # encoded settings of claims that are cached
RESERVED_TOKENS = 16  # tokens that every claim draws, and a plain claim at most: see claim.lua
WAITS = 3  # a renewal's answer for a claim that waits

_settings: dict[tuple[Any, ...], bytes] = {}


def millis(seconds: float) -> bytes:
    return b"%d" % _millis(seconds)


def _millis(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def claim_request(keys: Keys, claim: Claim, channel: bytes) -> bytes:
    """The keys and arguments of one claim. Settings that all claims of one lock share are encoded once."""
    settings = (claim.ttl, claim.permits, claim.capacity, claim.queued, claim.place_ttl, claim.block)
    encoded = _settings.get(settings) or _encode_settings(claim, settings)
    resource = claim.resource
    names = keys.of_claims.get(resource) or keys.claim_keys_and_counter(resource)
    id, note, who = claim.id.encode(), claim.note.encode(), claim.who.encode()
    tail = b"%b\n%d\n%b%b" % (channel, len(note), note, who)
    return b"%b$%d\r\n%b\r\n%b$%d\r\n%b\r\n" % (names, len(id), id, encoded, len(tail), tail)


def _encode_settings(claim: Claim, settings: tuple[Any, ...]) -> bytes:
    plain = claim.permits == claim.capacity == 1 and claim.block <= RESERVED_TOKENS
    text = b"%b%d %d %d %d %d" % (
        *(b"p" if plain else b"o", claim.queued, _millis(claim.place_ttl)),
        *(claim.permits, claim.capacity, claim.block - 1),
    )
    if len(_settings) > MAX_SETTINGS_CACHED:
        _settings.clear()
    encoded = _settings[settings] = bulk(millis(claim.ttl)) + bulk(text)
    return encoded


def claim_answer(claim: Claim, reply: Any) -> tuple[ClaimAnswer, int, list[Any]]:
    """The answer, the token of the place in the queue, and the grants that the script made on the way."""
    first, second, *rest = _listed(reply)
    if first == 1:
        return Granted(int(second), claim.ttl), 0, rest
    if first == 0:
        return (
            Busy(_number(second), _number(rest[0]) / 1000, holder(rest[2], int(rest[3]))),
            int(rest[1]),
            rest[4:],
        )
    if first == -1:
        return Gone(True, second.decode()), 0, rest
    if first == -3:
        return Gone(), 0, rest
    raise SettingsMismatch(claim.resource, claim.capacity, _number(second))


def holder(value: bytes, now: int) -> Standing | None:
    """The holder that a waiter waits for. Its remaining life was not asked: its whole ttl is shown."""
    id, _, record = value.partition(b"\n")
    match = RECORD.fullmatch(record)
    if match is None and value:
        return None
    return _standing(now, id, record, 1, int(match[3]) if match else -1)


def renew_request(keys: Keys, renewals: list[Renewal], channel: bytes) -> bytes:
    parts = [keys.claim_keys(renewal.resource) for renewal in renewals]
    parts.append(bulk(channel))
    for renewal in renewals:
        permits = b"" if renewal.permits is None else b"%d" % renewal.permits
        parts += [
            bulk(renewal.id.encode()),
            bulk(millis(renewal.ttl)),
            bulk(permits),
            bulk(new_note(renewal)),
        ]
    return b"".join(parts)


def new_note(renewal: Renewal) -> bytes:
    """The note that a renewal writes, behind a sign; empty if the note stays as it is."""
    return b"" if renewal.note is None else b"=" + renewal.note.encode()


def renew_answer(label: str, renewal: Renewal, reply: Any) -> RenewAnswer:
    if isinstance(reply, bytes):
        return Gone(True, reply.decode())
    if isinstance(reply, ErrorReply):
        return NoAnswer(str(reply_error(label, reply)))
    if _number(reply) == 0 or (reply == WAITS and not renewal.waiting):
        return Gone()
    return Renewed(renewal.ttl)


def standings(now: int, parts: list[Any]) -> list[Standing]:
    """Holders and waiters in queue order; `parts` has four items for each claim."""
    found = [_standing(now, *parts[i : i + 4]) for i in range(0, len(parts), 4)]
    return sorted(found, key=lambda standing: (not standing.admitted, standing.token))


def _standing(now: int, id: bytes, record: bytes, admitted: int, left: int) -> Standing:
    match = RECORD.fullmatch(record)
    lapses_in = left / 1000 if left >= 0 else NEVER
    if match is None:  # another program's key: its value may be a secret, and is not shown
        return Standing("", 0, 1, True, 0.0, lapses_in, "", "another program", foreign=True)
    token, since, _, permits, _, length, tail = match.groups()
    note, who = tail[: int(length)].decode(), tail[int(length) :].decode()
    age = max(0.0, (now - int(since)) / 1e6)
    return Standing(id.decode(), int(token), int(permits), bool(admitted), age, lapses_in, note, who)


def foreign_flags(foreign: bool, no_expiry: bool) -> bytes:
    """The arguments of an eviction that say which keys of other programs may be removed."""
    return bulk(b"1" if foreign else b"0") + bulk(b"1" if no_expiry else b"0")


def evicted(resource: str, reply: Any) -> tuple[list[Standing], list[Any], bytes]:
    """The claims that an eviction met, the grants it made, and the token up to which more are left ('' none).

    Raises `ForeignKey` if a key of another program is in its way.
    """
    now, told, more, *parts = _listed(reply)
    if isinstance(told, bytes):
        raise ForeignKey(resource, told.decode(errors="replace"), more == 1)
    if not isinstance(more, bytes):
        raise TypeError(f"{type(more).__name__} for a token up to which more are left")
    return standings(int(now), parts), _listed(told), more


def queue(resource: str, reply: Any) -> Queue:
    now, capacity, _, *parts = _listed(reply)
    return Queue(resource, _number(capacity), tuple(standings(int(now), parts)))


def written(reply: Any) -> tuple[int, bool]:
    """The new version of a register, 0 if it was another one's turn; and whether its watchers could be
    told.
    """
    return (_number(_listed(reply)[0]), False) if isinstance(reply, list) else (_number(reply), True)


def _number(value: Any) -> int:
    # A text of digits is bytes, which would be compared and counted like something else.
    if type(value) is not int:
        raise TypeError(f"{type(value).__name__} for a number")
    return value


def _listed(value: Any) -> list[Any]:
    if value.__class__ is not list:
        raise TypeError(f"{type(value).__name__} for an array")
    listed: list[Any] = value
    return listed


def versioned(value: bytes | None) -> Versioned:
    if value is None:
        return Versioned(None, 0)
    version, _, text = record_parts(value)
    return Versioned(text[1:].decode() if text else None, version)


def record_parts(value: bytes) -> tuple[int, bytes, bytes]:
    """The version of a register, the id of its writer, and = and the value, or nothing."""
    version, writer, text = value.split(b"\n", 2)
    return int(version), writer, text
