"""Brings back nodes that are away or have lost their memory, beside the callers.

A node without its marker, or with another run id, has forgotten what it granted, and so has no vote. Its
quarantine has two parts. First, every round that may count its earlier vote must be over: rounds are bounded.
Then the other nodes are asked for the longest ttl and the highest number they know, so many of them that
every majority the node was part of has a member among them. When that ttl has passed, every lease that
counted this node has lapsed, or was renewed by a majority without it. The node is then admitted, and accepts
only numbers above that one.

Sanfilippo's Redlock asks operators to delay restarts for this reason ("Distributed Locks with Redis"), and
Kleppmann named the restart without memory among its weak points (2016). Here the nodes themselves remember
whether they must wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from interlock._core.runtime import Job, Signal
from interlock._support.record import replaced
from interlock.backends.kit.runtime import StoreRuntime
from interlock.backends.redlock.algorithm.beginning import MAX_STEPS, NodeState, Step, next_steps
from interlock.backends.redlock.algorithm.clock import DRIFT_PART
from interlock.backends.redlock.algorithm.renewals import refill
from interlock.backends.redlock.quorum import ROUND_TIMEOUT_S, Quorum, ignore_reply
from interlock.backends.redlock.transport.timeouts import Timeouts
from interlock.backends.redlock.wire.requests import Admit, CheckIn, Reply
from interlock.errors import ClientClosed, InterlockError, InvalidSetting, StoreUnavailable

BACKGROUND_TIMEOUT_S = 1.0  # seconds for a node that no caller waits for
THOROUGH_TIMEOUT_S = 3.0  # seconds for all nodes when an operator's command is about every one of them
FIRST_PAUSE_S = 0.05  # seconds between the first two polls
MAX_PAUSE_S = 1.0
SLACK_MS = 100  # ms a quarantine lasts beyond the longest ttl
RESTED = (
    int(ROUND_TIMEOUT_S * 1000 * (1 + 2 * DRIFT_PART)) + SLACK_MS
)  # ms after which no round can count a vote that a node forgot


class Recovery:
    """Polls the nodes for as long as any of them is unhealthy."""

    def __init__(self, quorum: Quorum, runtime: StoreRuntime) -> None:
        self._quorum = quorum
        self._runtime = runtime
        self._job: Job | None = None
        self._poll_wanted: Signal | None = None  # set by a caller that cannot wait for the next poll
        self._poll_done: Signal | None = None  # set when a poll is over
        self._closed = False

    def start(self) -> None:
        """Poll the nodes in the background, unless that is being done."""
        job = self._job
        if (job is None or not job.alive()) and not self._closed:
            self._poll_wanted, self._poll_done = self._runtime.signal(), self._runtime.signal()
            with suppress(RuntimeError):  # no thread can be started now: the caller goes on without it
                self._job = self._runtime.spawn("interlock-quorum", self._run)

    async def run_now(self, timeout: float) -> bool:
        """Poll at once; return whether a majority has its vote by then.

        The caller does not poll itself: if it were cancelled halfway, new nodes would be left half admitted.
        """
        members, runtime = self._quorum.members, self._runtime
        far = 10 * self._quorum.transport.round_trip(members.size)
        until = runtime.now() + min(timeout, max(self._quorum.longest, far))
        for _ in range(2):  # a poll may be under way already
            if members.able:
                break
            self.start()
            wanted, done, left = self._poll_wanted, self._poll_done, until - runtime.now()
            if wanted is None or done is None or left <= 0:
                break
            wanted.set()
            await runtime.wait(done, left)
        return members.able

    def after_fork(self) -> None:
        self._job = self._poll_wanted = self._poll_done = None

    def close(self) -> None:
        self._closed = True
        if self._poll_wanted is not None:
            self._poll_wanted.set()

    async def _run(self) -> None:
        pause = FIRST_PAUSE_S
        while not self._closed:
            wanted = self._poll_wanted = (
                self._runtime.signal()
            )  # before the poll: a call during it wants another one
            try:
                await self.run_once(BACKGROUND_TIMEOUT_S)
            except ClientClosed:
                return
            except InterlockError:
                pass  # callers that want a lock get this error themselves
            done, self._poll_done = self._poll_done, self._runtime.signal()
            if done is not None:
                done.set()
            if not self._unhealthy():
                self._job = None  # from now on a caller that finds an unhealthy node starts a new job
                if self._unhealthy():
                    self.start()
                return
            if await self._runtime.wait(wanted, pause):
                pause = FIRST_PAUSE_S
            pause = min(MAX_PAUSE_S, pause * 1.5)

    def _unhealthy(self) -> bool:
        return self._quorum.members.unhealthy

    # ---- one poll ---------------------------------------------------------------

    async def run_once(self, timeout: float) -> None:
        """Check the nodes in, admit those whose quarantine is over, and enter our claims on those that are
        back.
        """
        members = self._quorum.members
        ailed = members.away | members.non_voting | members.take_missed_votes()
        states = await self._poll(CheckIn(), min(timeout, BACKGROUND_TIMEOUT_S))
        for node, state in enumerate(states):
            if not state.reachable:
                continue
            members.mark_present(node)
            await self._quorum.retry_releases(node, BACKGROUND_TIMEOUT_S)
            if state.votes:
                members.mark_voting(node, self._quorum.now())
            else:
                members.mark_non_voting(node)
        states = await self._begin(states)
        rested = [node for node, state in enumerate(states) if _rested(state)]
        if rested:
            await self._readmit(rested, timeout)
        back = ailed - members.away - members.non_voting
        if back and members.held:
            await refill(self._quorum, back, min(timeout, BACKGROUND_TIMEOUT_S))

    async def _begin(self, states: list[NodeState]) -> list[NodeState]:
        """Let new nodes begin; the states afterwards.

        If all are new, and this client has used them, they have all lost their memory: they wait until its
        claims have lapsed.
        """
        members = self._quorum.members
        rest = (
            max(RESTED, int(members.longest * 1000 * (1 + DRIFT_PART)) + SLACK_MS) if members.granted else 0
        )
        for _ in range(MAX_STEPS):
            new = not any(state.has_begun for state in states)
            if new and any(state.clock // 1000 < state.since + rest for state in states):
                break
            steps = next_steps(states, members.granted)
            if not steps:
                break
            states = await self._tell(steps)
        return states

    async def _readmit(self, rested: list[int], timeout: float) -> None:
        """Admit nodes that lost their memory.

        The others are asked only now: they know of every round that counted them.
        """
        members = self._quorum.members
        states = await self._poll(CheckIn(), min(timeout, BACKGROUND_TIMEOUT_S))
        voters = [state for state in states if state.votes]
        if len(voters) <= members.size - members.majority:
            return  # some majority may have no member among these
        longest = max(members.longest * 1000, *(state.longest for state in voters))
        quarantine = max(RESTED, int(longest * (1 + DRIFT_PART)) + SLACK_MS)
        floor = max(state.top for state in voters)
        admit: dict[int, Admit] = {}
        for node in rested:
            state = states[node]
            done = state.since and state.clock // 1000 >= state.since + quarantine
            if done and members.steady(node, self._quorum.now()):
                admit[node] = Admit(state.since, quarantine, floor)
        if admit:
            await self._tell(admit)

    async def _poll(self, request: CheckIn, timeout: float) -> list[NodeState]:
        """Ask each node for its state."""
        quorum, members = self._quorum, self._quorum.members
        found = [_unreachable(label) for label in members.labels]

        def on_reply(node: int, reply: Reply, sent: float, received: float) -> bool:
            if isinstance(reply, InterlockError):
                members.faults[node] = str(reply)
                found[node] = _unreachable(members.labels[node], str(reply))
            else:
                members.counts(node, reply[0], sent, received)
                members.settle_jump(node, reply[4] / 1000)
                found[node] = self._state(node, reply)
            return False

        timeouts = Timeouts(timeout, timeout, members.size)
        unanswered = await quorum.transport.ask(
            request, members.everyone, members.everyone, on_reply, timeouts
        )
        if unanswered:
            members.mark_away(unanswered)
        return found

    def _state(self, node: int, reply: list[Any]) -> NodeState:
        clock, run, since, top, longest, _, fields, actual, durable, ready, begun = reply
        members = self._quorum.members
        voting = run == actual and not since
        state = "voting" if voting else "new" if not run else "quarantined" if since else "restarted"
        left = 0.0
        if since:
            left = _left(since, clock, max(members.longest * 1000, longest))
        offset = members.clocks[node].offset
        return NodeState(
            *(members.labels[node], True, state, left, actual, offset, top, fields, bool(durable)),
            *(longest, since, clock, ready, bool(begun)),
        )

    async def _tell(self, requests: Mapping[int, Step]) -> list[NodeState]:
        """Tell all of these nodes, then poll once, and return the states: distant nodes cost two round
        trips, not one each.
        """
        members, told = self._quorum.members, Timeouts(BACKGROUND_TIMEOUT_S, BACKGROUND_TIMEOUT_S, 1)
        for node, request in requests.items():
            await self._quorum.transport.ask(request, (node,), (), ignore_reply, told)
        states = await self._poll(CheckIn(), BACKGROUND_TIMEOUT_S)
        for node, state in enumerate(states):
            if node in requests and state.votes:
                members.mark_voting(node, self._quorum.now())
        return states

    # ---- for operators ------------------------------------------------------------

    async def status(self) -> list[NodeState]:
        """What each node remembers. Changes nothing."""
        states = await self._poll(CheckIn(read_only=True), BACKGROUND_TIMEOUT_S)
        longest = max((state.longest for state in states), default=0)
        return [_waits(state, longest) for state in states]

    async def admit(self, label: str) -> NodeState:
        """Give a node its vote before its quarantine is over, on an operator's word that nothing is held
        any more.
        """
        members = self._quorum.members
        states = await self._poll(CheckIn(), THOROUGH_TIMEOUT_S)
        near = [
            node
            for node, known in enumerate(members.labels)
            if label in (known, known.removeprefix("Redis at "))
        ]
        if not near:
            raise InvalidSetting(f"{label} is none of the nodes: {', '.join(members.labels)}")
        (node,) = near
        state, voters = states[node], [state for state in states if state.votes]
        if not state.reachable:
            raise StoreUnavailable(f"{state.label}: {state.state}")
        if state.votes:
            return state
        if len(voters) <= members.size - members.majority:
            raise StoreUnavailable(
                f"{label}: too few of the other nodes have a vote to tell which numbers were given out; when "
                "nothing is held any more, `interlock quorum init` lets all begin anew"
            )
        await self._tell({node: Admit(state.since, 0, max(voter.top for voter in voters))})
        return (await self._poll(CheckIn(), THOROUGH_TIMEOUT_S))[node]

    async def init(self, *, missing: bool = False) -> list[NodeState]:
        """Give every node its vote now, on an operator's word; `missing` allows nodes that cannot be
        reached.
        """
        states = await self._poll(CheckIn(), THOROUGH_TIMEOUT_S)
        away = [f"{state.label} ({state.state})" for state in states if not state.reachable]
        if away and not missing:
            raise StoreUnavailable(f"not all nodes can be reached: {'; '.join(away)}")
        states = await self._begin(states)
        top = max((state.top for state in states), default=0)
        needy = [node for node, state in enumerate(states) if state.reachable and not state.votes]
        await self._tell({node: Admit(states[node].since, 0, top) for node in needy})
        return await self._poll(CheckIn(), THOROUGH_TIMEOUT_S)


def _rested(state: NodeState) -> bool:
    """Whether every round that may count its forgotten votes is over."""
    return state.reachable and state.since > 0 and state.clock // 1000 >= state.since + RESTED


def _unreachable(label: str, why: str = "no answer") -> NodeState:
    return NodeState(label, False, why, 0.0, "", None, 0, 0, False)


def _waits(state: NodeState, longest: int) -> NodeState:
    """The state with the time that its quarantine has left, if the other nodes know of a longer ttl."""
    if not state.since:
        return state
    left = _left(state.since, state.clock, longest)
    return replaced(state, quarantine_left=max(state.quarantine_left, left))


def _left(since: int, clock: int, longest: float) -> float:
    """Seconds that a quarantine has left; one that begins in the future begins when a client looks."""
    lasts = max(RESTED, int(longest * (1 + DRIFT_PART)) + SLACK_MS)
    return max(0.0, (min(since, clock // 1000) + lasts - clock // 1000) / 1000)
