"""`run`: hold a resource while a command runs.

The lease is held here; the command lives with a warden (see there), who is told of each renewal and ends the
command in time if they stop.
"""

from __future__ import annotations

import os
import signal
import threading
from argparse import Namespace

from interlock import clock, events
from interlock._core.attempt import Attempt
from interlock._core.drive import drive
from interlock._core.holding import Holding
from interlock._core.names import checked_name
from interlock._core.settings import Settings
from interlock._core.states import State
from interlock._core.timing import checked_count
from interlock.blocking import Client, Lease, _connected
from interlock.cli import codes, document, eviction, opening, waiting, words
from interlock.cli import grace as timing
from interlock.cli.command import Command
from interlock.cli.outlet import Outlet
from interlock.cli.signals import Interrupted, Signals
from interlock.cli.warden import Duty
from interlock.errors import (
    AcquireTimeout,
    Evicted,
    InterlockError,
    InvalidSetting,
    LeaseLost,
    SettingsMismatch,
    StoreUnavailable,
    Unsupported,
)
from interlock.model import EVERYTHING
from interlock.record import replaced
from interlock.who import Who

KINDS = (1, EVERYTHING)  # the capacities of a lock and of a read-write lock
CHANGES_OF_KIND = 20


def run(options: Namespace, outlet: Outlet) -> int:
    """Hold the resource, run the command, release; return the code to exit with."""
    checked_name(options.name)
    grace = timing.checked(options.grace, options.ttl)
    command = Command.prepare(Duty(options.argv, options.name, options.ttl, grace))
    signals = Signals()
    try:
        signals.interrupt()
        return Run(options, outlet, command, signals, grace).go()
    except Interrupted as interrupted:
        return codes.died_of(interrupted.number)
    finally:
        command.dismiss()


class Run:
    """One run, from the queue to the exit code."""

    def __init__(
        self, options: Namespace, outlet: Outlet, command: Command, signals: Signals, grace: float
    ) -> None:
        self._options = options
        self._outlet = outlet
        self._command = command
        self._signals = signals
        self._grace = grace
        self._margin = timing.margin(options.ttl)
        self._lost_at: float | None = None
        self._acquired = False
        self._capacity = 1
        self._told_of_waiting = False

    def go(self) -> int:
        client = self._client = _connected(self._options.url, self._options.ttl, self._listen)
        self._name_store()
        try:
            if client.traits.reach == "process":
                raise Unsupported(
                    f"{client.traits.backend}:// is seen by one process alone, so it would keep nobody out; "
                    "name a store that others see, as sqlite:////path/to/locks.db"
                )
            lease = self._acquire(client)
            self._signals.relay_to(self._command.relay)
            return self._hold(client, lease)
        except AcquireTimeout as error:
            return self._skip(error) if self._options.once else self._not_acquired(error)
        except Evicted as error:
            return self._not_acquired(error)
        finally:
            self._close(client)

    def _close(self, client: Client) -> None:
        try:
            client.close()
        except InterlockError as error:  # whatever the store says now, the command's own code stands
            self._outlet.warn(words.printable(str(error)))

    def _not_acquired(self, error: InterlockError) -> int:
        asked = self._options.conflict_exit_code
        code = codes.NOT_ACQUIRED if asked is None else int(asked)
        if self._outlet.json or not self._options.quiet:
            self._outlet.error(words.printable(str(error)), code)
        return code

    def _skip(self, error: AcquireTimeout) -> int:
        """Another worker runs it, or has just run it: that is success, and nothing to write home about."""
        holders = [words.held(holder) for holder in error.holders[:1]]
        told = "; ".join([f"{words.printable(error.resource)}: skipped", *holders])
        if self._outlet.json:
            self._outlet.event("skipped", resource=error.resource, message=told, code=0)
        elif self._options.verbose:
            self._outlet.say(told)
        return 0

    # ---- taking ----------------------------------------------------------------------

    def _acquire(self, client: Client) -> Lease:
        """The lease; as with flock(1), `run` and `run -s` on one name exclude each other.

        A lock and a read-write lock differ in capacity. Whoever comes second adopts the kind that stands:
        all of it for an exclusive run, one part for a shared one (of a lock, that part is all).
        """
        options = self._options
        until = None if options.timeout is None else clock.now() + options.timeout
        capacity = options.capacity or (EVERYTHING if options.shared else 1)
        for _ in range(CHANGES_OF_KIND):
            try:
                return self._attempt(client, capacity, until)
            except SettingsMismatch as mismatch:
                if options.capacity is not None or mismatch.standing not in KINDS:
                    raise
                capacity = mismatch.standing
        return self._attempt(client, capacity, until)

    def _attempt(self, client: Client, capacity: int, until: float | None) -> Lease:
        options = self._options
        if options.capacity is not None:
            permits = options.permits or 1
            if permits > checked_count(capacity, "--capacity"):
                raise InvalidSetting(f"--permits {permits} can never fit into --capacity {capacity}")
        else:
            permits = 1 if options.shared else capacity
        settings = Settings(options.ttl, min_hold=options.min_hold or None, on_lost=self._on_lost)
        holding = Holding(client._core, options.name, settings, permits=permits, capacity=capacity)
        left = None if until is None else max(0.0, until - clock.now())
        # The program's name alone: its arguments may hold what others must not read.
        blocking = not (options.nonblock or options.once)
        attempt = holding.attempt(blocking, left, note=os.path.basename(options.argv[0]))
        _sign(attempt)
        self._capacity = capacity
        try:
            lease = drive(attempt.demand())
        except BaseException:
            drive(attempt.undo())
            raise
        assert isinstance(lease, Lease)
        self._acquired = True
        return lease

    # ---- holding ----------------------------------------------------------------------

    def _hold(self, client: Client, lease: Lease) -> int:
        over = threading.Event()
        eviction.watch(client._core, lease, over)
        try:
            # Where the store frees the locks of a dead process at once, the command must count as a part of ours.
            vital = getattr(client._core.store, "vital", lambda: None)()
            self._command.start(lease.token, lease.deadline, vital)
            status, ended = self._follow(lease)
            lost = ended or lease.state is State.LOST
        except ExecFailed as failed:
            code = codes.of_exec(failed.errno)
            self._outlet.error(f"{words.printable(self._options.argv[0])}: {failed}", code)
            return code
        finally:
            over.set()
            self._signals.stop()
            lost_by_store = self._release(lease)
        own = os.waitstatus_to_exitcode(status)
        code = own = codes.died_of(-own) if own < 0 else own
        if lost or lost_by_store:
            code = codes.LOST
            self._outlet.error(self._loss(lease, ended, own), code)
        if self._outlet.json:
            self._outlet.event("exited", code=code, command=own)
        return code

    def _follow(self, lease: Lease) -> tuple[int, bool]:
        """The status the command ended with, and whether it was ended; tells the warden of renewals."""
        told, killed = lease.deadline, False
        pause = min(0.25, max(0.005, self._options.ttl / 50))
        while True:
            for word, *values in self._command.reports(pause):
                if word == "exited":
                    return int(values[0]), values[1] == "1"
                if word == "gone":
                    self._command.kill()
                    if not killed:
                        self._outlet.warn(
                            "somebody killed the process that guards the command; it was killed too"
                        )
                    return signal.SIGKILL, killed
                if word == "failed":
                    raise ExecFailed(int(values[0]))
                self._tell(lease, word, values)
            if lease.deadline != told:
                told = lease.deadline
                self._command.extend(told)
            if not killed and self._overdue(lease):
                killed = True
                self._command.kill()

    def _overdue(self, lease: Lease) -> bool:
        """Whether the warden should have ended the command by now: then it has been stopped itself."""
        now = clock.now()
        if self._lost_at is not None:
            return now > self._lost_at + self._grace + 1.0
        return now > lease.deadline - self._margin / 2

    def _release(self, lease: Lease) -> bool:
        """Give the resource back; True if the store had let others in before."""
        held = lease.state is not State.LOST
        try:
            lease.release()
        except LeaseLost as loss:
            return held and loss.cause != "lapsed"
        except StoreUnavailable:
            name = words.printable(lease.resource)
            self._outlet.warn(
                f"{name}: the store did not answer the release; it lapses by itself in {lease.ttl:g} s"
            )
        return False

    # ---- telling ------------------------------------------------------------------------

    def _on_lost(self, lease: Lease) -> None:
        if lease.loss().cause != "lapsed":  # of that the warden's own clock has told it
            self._lost_at = clock.now()
            self._command.end()

    def _tell(self, lease: Lease, word: str, values: list[str]) -> None:
        if self._outlet.json:
            data = {"pid": int(values[0])} if word == "started" else {"resource": lease.resource}
            self._outlet.event(word, **data)

    def _loss(self, lease: Lease, ended: bool, code: int) -> str:
        what = f"the command {'was' if ended else 'has'} ended (with code {code})"
        if lease._cause:
            return f"{words.printable(str(lease.loss()))}; {what}"
        name = words.printable(lease.resource)
        return f"{name}: no renewal was answered in time; {what}, before its lease could end"

    def _name_store(self) -> None:
        url = self._options.url
        if self._options.verbose:
            whose = f"; {opening.whose()}" if opening.is_default(url) else ""
            self._outlet.warn(f"the store is {opening.name(url)}{whose}")
        elif not self._options.quiet and (warning := opening.under_sudo(url)):
            self._outlet.warn(warning)

    def _listen(self, event: events.Event) -> None:
        """Tell what happens to the lease; called on whatever thread it happens."""
        if isinstance(event, events.Waiting):
            if self._told_of_waiting or (self._options.quiet and not self._outlet.json):
                return  # once, though a change of kind made us ask anew
            self._told_of_waiting = True
            event = waiting.with_holder(event, self._client._core)
        if self._outlet.json:
            names: tuple[str, ...] = event.__match_args__
            data = {name: document.of_value(getattr(event, name)) for name in names}
            self._outlet.event(_snake(type(event).__name__), **data)
        elif self._options.verbose and isinstance(event, (events.Acquired, events.Released)):
            self._outlet.say(_life(event))
        elif isinstance(event, events.Waiting):
            self._outlet.say(waiting.sentence(event, self._capacity))
        elif isinstance(event, events.Doubtful):
            left = max(0.0, event.remaining - self._margin - self._grace)
            self._outlet.warn(
                f"{words.printable(event.resource)}: the store does not answer; "
                f"the command is ended in {left:.1f} s unless it does"
            )
        elif isinstance(event, events.CleanupFailed) and self._acquired:
            # Before that, the error that kept us from acquiring says more, and is the last line.
            self._outlet.warn(
                f"{words.printable(event.resource)}: could not be given back and lapses by itself ({event.error})"
            )


def _life(event: events.Acquired | events.Released) -> str:
    name = words.printable(event.resource)
    if isinstance(event, events.Acquired):
        return f"{name}: acquired after {event.waited:.1f} s, token {event.token}"
    return f"{name}: released after {event.held:.1f} s"


def _sign(attempt: Attempt) -> None:
    """Say `interlock run` for the call site: a line of the script that started Python tells nobody anything."""
    who = Who.parse(attempt.claim.who)
    attempt.claim = replaced(attempt.claim, who=replaced(who, thread="", site="interlock run").pack())


class ExecFailed(Exception):
    """The command could not be executed."""

    def __init__(self, errno: int) -> None:
        super().__init__(errno)
        self.errno = errno

    def __str__(self) -> str:
        if codes.of_exec(self.errno) == codes.NOT_FOUND:
            return "command not found; give its path, or have it in $PATH"
        return f"cannot be executed: {os.strerror(self.errno).lower()}"


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
