"""What a client remembers of its own claims is bounded, and only the oldest is forgotten."""

from __future__ import annotations

from interlock.backends.kit.own_claims import MAX_REMEMBERED, OwnClaims
from interlock.errors import StoreUnavailable, Unreached


def test_a_claim_without_an_answer_is_remembered_though_thousands_before_it_were_not_answered() -> None:
    """If all were forgotten at once, a request that is still under way could enter after its release, for nobody."""
    own = OwnClaims()
    for number in range(MAX_REMEMBERED + 1):
        own.leave_unanswered(f"claim-{number}", StoreUnavailable("no answer"))
    assert len(own.unanswered) == MAX_REMEMBERED
    assert "claim-0" not in own.unanswered
    assert {"claim-1", f"claim-{MAX_REMEMBERED}"} <= own.unanswered.keys()


def test_a_claim_that_was_never_sent_leaves_nothing_to_remember() -> None:
    own = OwnClaims()
    own.leave_unanswered("claim", Unreached("no connection"))
    assert not own.unanswered


def test_a_claim_that_was_removed_is_forgotten() -> None:
    own = OwnClaims()
    own.places["claim"] = (1, 7)
    own.leave_unanswered("claim", StoreUnavailable("no answer"))
    own.forget("claim")
    assert not own.places
    assert not own.unanswered
