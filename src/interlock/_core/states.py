"""The life of a lease, as a table.

Only `lease.py` moves a lease along it; the diagram in the docs is drawn from it.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    HELD = "held"  # renewed within its ttl, as far as we know
    DOUBTFUL = "doubtful"  # the last renewal got no answer; the ttl has not run out
    LOST = "lost"  # the store said so, or the ttl ran out on our own clock
    RELEASED = "released"

    __hash__ = object.__hash__  # the name's, which Enum takes, is a call in Python; looked up at every step


class LeaseEvent(Enum):
    RENEWED = "renewed"
    REFUSED = "refused"  # the store answered: the claim is gone
    NO_ANSWER = "no answer"  # timeout, broken connection, suspended session
    LAPSED = "lapsed"  # our own clock passed the deadline
    RELEASE = "release"

    __hash__ = object.__hash__  # as above


HELD, DOUBTFUL, LOST, RELEASED = State
RELEASE = LeaseEvent.RELEASE
"""Constants of the module, because Python searches the classes of an Enum each time a member is named."""


TRANSITIONS: dict[State, dict[LeaseEvent, State]] = {
    State.HELD: {
        LeaseEvent.RENEWED: State.HELD,
        LeaseEvent.NO_ANSWER: State.DOUBTFUL,
        LeaseEvent.REFUSED: State.LOST,
        LeaseEvent.LAPSED: State.LOST,
        LeaseEvent.RELEASE: State.RELEASED,
    },
    State.DOUBTFUL: {
        LeaseEvent.RENEWED: State.HELD,
        LeaseEvent.NO_ANSWER: State.DOUBTFUL,
        LeaseEvent.REFUSED: State.LOST,
        LeaseEvent.LAPSED: State.LOST,
        LeaseEvent.RELEASE: State.RELEASED,
    },
    State.LOST: {event: State.LOST for event in LeaseEvent},  # final
    State.RELEASED: {
        event: State.RELEASED for event in LeaseEvent
    },  # final too: a late answer changes nothing
}

FINAL = (State.LOST, State.RELEASED)
