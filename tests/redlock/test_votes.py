"""One round of votes: what is sent, and when it is over."""

from __future__ import annotations

from interlock.backends.redlock.algorithm.claims import Votes
from interlock.backends.redlock.algorithm.membership import Membership
from interlock.backends.redlock.wire.packed import NodeIdentity
from interlock.backends.redlock.wire.packing import Packing
from interlock.backends.redlock.wire.requests import BUSY, TOO_LOW, Vote
from interlock.model import Claim

CLOCK = 1_000_000


def test_a_majority_of_acceptances_ends_a_round_and_fewer_do_not() -> None:
    votes = Votes(Membership(list("abcde")), Vote(Claim("x", "a", 30.0), 7))
    assert [votes.on_reply(node, b"%d" % CLOCK, 5.0, 5.001) for node in range(3)] == [False, False, True]


def test_an_acceptance_ends_a_round_in_which_only_a_higher_ballot_can_help() -> None:
    votes = Votes(Membership(list("abcde")), Vote(Claim("x", "a", 30.0), 7))
    assert not votes.on_reply(0, [CLOCK, BUSY, 1, 50, b""], 5.0, 5.001)
    assert not votes.on_reply(1, [CLOCK, TOO_LOW, 9], 5.0, 5.001)
    assert not votes.on_reply(2, [CLOCK, TOO_LOW, 9], 5.0, 5.001)
    assert votes.on_reply(3, b"%d" % CLOCK, 5.0, 5.001), "it waits for a node that cannot change anything"


def test_a_vote_says_who_asks_and_with_which_note_whatever_was_asked_before() -> None:
    packing = Packing("")
    for who, note in (("me", ""), ("me", "hi"), ("me", ""), ("you", ""), ("you", "hi")):
        vote = packing.pack(Vote(Claim("x", "a", 30.0, who=who, note=note), 7))
        assert vote.by_hash(NodeIdentity(), 0).endswith(f"\n{len(note)}\n{note}{who}\r\n".encode())
