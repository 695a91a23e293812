"""Requests that are put together from parts are the requests that the plain functions make."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from interlock.backends.etcd.algorithm import claims, queue_view, releases
from interlock.backends.etcd.algorithm.key_names import KeyNames
from interlock.backends.etcd.algorithm.sessions import OwnClaim, Session
from interlock.backends.etcd.wire import values
from interlock.backends.etcd.wire.keys import Keys
from interlock.backends.etcd.wire.messages import (
    compare_create_revision,
    compare_mod_revision,
    delete_op,
    get,
    get_op,
    nothing_in,
    put,
    put_op,
    txn,
    txn_op,
)
from interlock.backends.etcd.wire.protobuf import decode
from interlock.backends.etcd.wire.values import claim_value
from interlock.model import Claim

BOTH_KEYS = (Keys(), Keys("a"))
CLAIMS = [
    Claim(resource, id, permits=permits, capacity=capacity, ttl=30.0, queued=queued, note=note, who="w")
    for resource in ("x", "a/b 50%", "ÿþ" * 50)
    for id in ("0" * 32, "7", "é" * 40)
    for permits, capacity in ((1, 1), (1, 3), (1, 5000))
    for queued in (True, False)
    for note in ("", "n" * 100, "n" * 20_000)
]


@pytest.fixture(autouse=True)
def _one_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "time", SimpleNamespace(time=lambda: 1793.12))


def plain(
    keys: Keys, mine: bytes, lease: int, claim: Claim, floor: tuple[int, int]
) -> bytes:  # as the head of `claims` tells it
    folder, gone, (since, above) = keys.folder(claim.resource), keys.gone(claim.id), floor
    sound = [compare_create_revision(gone, 0), compare_mod_revision(keys.floor, since)]
    alone = [] if claim.queued else [nothing_in(*folder)]
    enter, reads = put_op(put(mine, claim_value(claim, above), lease)), queue_view.queue_reads(claim, folder)
    otherwise = [get_op(get(gone)), *reads, get_op(get(keys.floor)), get_op(get(mine))]
    entered = queue_view.reads_on_entering(claim.permits, claim.capacity, claim.queued, folder)
    inner = txn([*sound, compare_create_revision(mine, 0), *alone], [enter, *entered], otherwise)
    return txn([*sound, nothing_in(*folder)], [enter], [txn_op(inner)])


def test_the_quick_request_is_the_plain_one() -> None:
    """Each twice, and all in turns, so that parts of one that were kept for another would show."""
    names = [KeyNames(keys) for keys in BOTH_KEYS]
    for lease, floor in ((1, (0, 0)), ((1 << 62) - 1, (0, 0)), (1, (1 << 40, 5)), (1, (1 << 40 | 1, 5))):
        session = Session(lease, 30, 30.0, 0.0)
        for claim in CLAIMS * 2:
            for keys, of in zip(BOTH_KEYS, names, strict=True):
                held = OwnClaim(session, of.take(claim.resource))
                made = claims._quick_request(_side(keys), session, held, claim, floor)
                assert made == plain(keys, held.key, lease, claim, floor)


@pytest.mark.parametrize("created", [0, 1, 127, 128, 1 << 40])
def test_a_removal_compares_and_deletes(created: int) -> None:
    for keys in BOTH_KEYS:
        for claim in CLAIMS:
            mine = keys.claim(claim.resource, "word")
            compare = [
                compare_create_revision(keys.gone(claim.id), 0),
                *([compare_create_revision(mine, created)] if created else []),
            ]
            made = releases._removal(_side(keys), claim.id, mine, created)
            assert decode(made) == decode(txn(compare, [delete_op(mine)]))


@pytest.mark.parametrize("text", ["plain", 'quo"te\\', "new\nline", "é\U0001f512", "\ud800", "\x00"])
@pytest.mark.parametrize("floor", [0, 7])
def test_a_value_says_what_the_claim_says(text: str, floor: int) -> None:
    claim = Claim("x", text, permits=2, capacity=3, ttl=1.5, note=text, who=text)
    said = json.loads(claim_value(claim, floor).decode("utf-8", "surrogatepass"))
    assert said.pop("floor", 0) == floor
    assert said.pop("came") == 1793.12
    assert said == {"id": text, "permits": 2, "capacity": 3, "ttl": 1.5, "note": text, "who": text}


def test_long_notes_are_not_kept_in_memory() -> None:
    values._rest_of_value.cache_clear()
    for n in range(10):
        claim_value(Claim("x", "1", 30.0, note=str(n) * 100_000), 0)
    assert values._rest_of_value.cache_info().currsize == 0


def _side(keys: Keys) -> Any:
    return cast(Any, SimpleNamespace(keys=keys))
