"""`run`: hold a resource while a command runs.

The lease is held here; the command lives with a warden (see there), who is told of each renewal and ends the
command in time if they stop.
"""

from __future__ import annotations

import os
import signal
from argparse import Namespace
from contextlib import suppress
from typing import Any

from interlock import events, urls
from interlock._core.names import checked_name
from interlock._support import clock
from interlock._support.wording import duration
from interlock.blocking import Client, Lease, connect
from interlock.cli import (
    eviction_watch,
    exit_codes,
    formatting,
    json_output,
    target_store,
    termination,
    wait_notice,
)
from interlock.cli.command import Command
from interlock.cli.output import Output
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

LOCK_CAPACITIES = (1, EVERYTHING)  # the capacities of a lock and of a read-write lock
MAX_KIND_CHANGES = 20
MAX_NOTE_LETTERS = 255  # letters of a program's name

FOR_METRICS = (events.Queued, events.Renewed, events.AcquireFailed)
"""Events that count for statistics; what they say of one run, its other events say better."""


def run(options: Namespace, output: Output) -> int:
    """Hold the resource, run the command, release; return the code to exit with."""
    checked_name(options.name)
    grace = termination.checked_grace(options.grace, options.ttl)
    command = Command.prepare(Duty(options.argv, options.name, options.ttl, grace))
    signals = Signals()
    try:
        signals.interrupt()
        return Run(options, output, command, signals, grace).go()
    except Interrupted as interrupted:
        return exit_codes.died_of(interrupted.number)
    finally:
        command.dismiss()


class Run:
    """One run, from the queue to the exit code."""

    def __init__(
        self, options: Namespace, output: Output, command: Command, signals: Signals, grace: float
    ) -> None:
        self._options = options
        self._output = output
        self._command = command
        self._signals = signals
        self._grace = grace
        self._margin = termination.margin(options.ttl)
        self._lost_at: float | None = None
        self._acquired = False
        self._capacity = 1
        self._reported_waiting = False

    def go(self) -> int:
        client = self._client = connect(
            self._options.url,
            ttl=self._options.ttl,
            listener=self._listen,
            log=False,
            # A line of the script that started Python tells nobody anything.
            call_site="interlock run",
        )
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
            self._output.warn(formatting.printable(str(error)))

    def _not_acquired(self, error: InterlockError) -> int:
        asked = self._options.conflict_exit_code
        code = exit_codes.NOT_ACQUIRED if asked is None else int(asked)
        if self._output.json or not self._options.quiet:
            self._output.error(formatting.printable(str(error)), code)
        return code

    def _skip(self, error: AcquireTimeout) -> int:
        """Another worker runs it, or has just run it: that is success, and nothing to write home about."""
        holders = [formatting.held(holder) for holder in error.holders[:1]]
        sentence = "; ".join([f"{formatting.printable(error.resource)}: skipped", *holders])
        if self._output.json:
            self._output.event("skipped", resource=error.resource, message=sentence, code=0)
        elif self._options.verbose:
            self._output.say(sentence)
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
        for _ in range(MAX_KIND_CHANGES):
            try:
                return self._attempt(client, capacity, until)
            except SettingsMismatch as mismatch:
                if options.capacity is not None or mismatch.standing not in LOCK_CAPACITIES:
                    raise
                capacity = mismatch.standing
        return self._attempt(client, capacity, until)

    def _attempt(self, client: Client, capacity: int, until: float | None) -> Lease:
        """Take a lock, a read-write lock or a semaphore, whichever has this capacity."""
        options, self._capacity = self._options, capacity
        # The program's name alone: its arguments may hold what others must not read.
        note = formatting.printable(os.path.basename(options.argv[0]))[:MAX_NOTE_LETTERS]
        blocking = not (options.nonblock or options.once)
        timeout = -1 if until is None or not blocking else max(0.0, until - clock.now())
        common: Any = {"min_hold": options.min_hold or None, "on_lost": self._on_lost, "note": note}
        if options.capacity is not None:
            permits = _checked_permits(options.permits or 1, capacity)
            semaphore = client.semaphore(options.name, capacity, **common)
            lease = semaphore.acquire_or_raise(blocking, timeout, permits=permits)
        elif capacity == EVERYTHING:
            both = client.rwlock(options.name, **common)
            lease = (both.read() if options.shared else both.write()).acquire_or_raise(blocking, timeout)
        else:
            lease = client.lock(options.name, **common).acquire_or_raise(blocking, timeout)
        self._acquired = True
        return lease

    # ---- holding ----------------------------------------------------------------------

    def _stretch(self, lease: Lease) -> None:
        """Give the lease its whole ttl before the command starts.

        A lease that was handed over while we waited lives only as long as our place in the queue did, which
        may be less than the grace: the warden would end the command before the first renewal.
        """
        ttl = self._options.ttl
        if termination.term_at(lease.deadline, ttl, self._grace) - clock.now() < termination.renew_every(ttl):
            with suppress(StoreUnavailable):  # then the warden knows best how much time is left
                lease.renew()

    def _hold(self, client: Client, lease: Lease) -> int:
        self._stretch(lease)
        eviction_watch.watch(lease)
        try:
            # Where the store frees the locks of a dead process at once, the command must count as a part of
            # ours.
            self._command.start(lease.token, lease.deadline, client.store.liveness_byte())
            status, ended = self._follow(lease)
            lost = ended or lease.cause != ""
        except ExecFailed as failed:
            code = exit_codes.of_exec(failed.errno)
            command = formatting.printable(urls.without_password(self._options.argv[0]))
            self._output.error(f"{command}: {failed}", code)
            return code
        finally:
            self._signals.stop()
            lost_by_store = self._release(lease)
        own = os.waitstatus_to_exitcode(status)
        code = own = exit_codes.died_of(-own) if own < 0 else own
        if lost or lost_by_store:
            code = exit_codes.LOST
            self._output.error(self._loss(lease, ended, own), code)
        if self._output.json:
            self._output.event("exited", code=code, command=own)
        return code

    def _follow(self, lease: Lease) -> tuple[int, bool]:
        """The status the command ended with, and whether it was ended; tells the warden of renewals."""
        known, killed = lease.deadline, False
        pause = min(0.25, max(0.005, self._options.ttl / 50))
        while True:
            for word, *values in self._command.reports(pause):
                if word == "exited":
                    return int(values[0]), values[1] == "1"
                if word == "gone":
                    self._command.kill()
                    if not killed:
                        self._output.warn(
                            "somebody killed the process that guards the command; it was killed too"
                        )
                    return signal.SIGKILL, killed
                if word == "failed":
                    raise ExecFailed(int(values[0]))
                self._report(lease, word, values)
            if lease.deadline != known:
                known = lease.deadline
                self._command.extend(known)
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
        held = not lease.cause
        try:
            lease.release()
        except LeaseLost as loss:
            return held and loss.cause != "lapsed"
        except StoreUnavailable:
            name = formatting.printable(lease.resource)
            self._output.warn(
                f"{name}: the store did not answer the release; it lapses by itself in {duration(lease.ttl)}"
            )
        return False

    # ---- reporting ------------------------------------------------------------------------

    def _on_lost(self, lease: Lease) -> None:
        if lease.loss().cause != "lapsed":  # of that the warden's own clock has told it
            self._lost_at = clock.now()
            self._command.end()

    def _report(self, lease: Lease, word: str, values: list[str]) -> None:
        if self._output.json:
            data = {"pid": int(values[0])} if word == "started" else {"resource": lease.resource}
            self._output.event(word, **data)

    def _loss(self, lease: Lease, ended: bool, code: int) -> str:
        what = f"the command {'was' if ended else 'has'} ended (with code {code})"
        if lease.cause:
            return f"{formatting.printable(str(lease.loss()))}; {what}"
        name = formatting.printable(lease.resource)
        return f"{name}: no renewal was answered in time; {what}, before its lease could end"

    def _name_store(self) -> None:
        url = self._options.url
        if self._options.verbose:
            whose = f"; {target_store.whose()}" if target_store.is_default(url) else ""
            self._output.warn(f"the store is {target_store.name(url)}{whose}")
        elif not self._options.quiet and (warning := target_store.under_sudo(url)):
            self._output.warn(warning)

    def _listen(self, event: events.Event) -> None:
        """Tell what happens to the lease; called on whatever thread it happens."""
        if isinstance(event, FOR_METRICS):
            return
        if isinstance(event, events.Waiting):
            if self._reported_waiting or (self._options.quiet and not self._output.json):
                return  # once, though a change of kind made us ask anew
            self._reported_waiting = True
            event = wait_notice.with_holder(event, self._client)
        if self._output.json:
            names: tuple[str, ...] = event.__match_args__
            data = {name: json_output.of_value(getattr(event, name)) for name in names}
            self._output.event(_snake(type(event).__name__), **data)
        elif self._options.verbose and isinstance(event, (events.Acquired, events.Released)):
            self._output.say(_life(event))
        elif isinstance(event, events.Waiting):
            self._output.say(wait_notice.sentence(event, self._capacity))
        elif isinstance(event, events.Doubtful):
            left = max(0.0, event.remaining - self._margin - self._grace)
            self._output.warn(
                f"{formatting.printable(event.resource)}: the store does not answer; "
                f"the command is ended in {duration(left)} unless it does"
            )
        elif isinstance(event, events.CleanupFailed) and self._acquired:
            # Before that, the error that kept us from acquiring says more, and is the last line.
            self._output.warn(
                f"{formatting.printable(event.resource)}: could not be given back and lapses by itself "
                f"({formatting.printable(str(event.error))})"
            )


def _life(event: events.Acquired | events.Released) -> str:
    name = formatting.printable(event.resource)
    if isinstance(event, events.Acquired):
        return f"{name}: acquired after {duration(event.waited)}, token {event.token}"
    return f"{name}: released after {duration(event.held)}"


def _checked_permits(permits: int, capacity: int) -> int:
    """The permits, if they fit into a capacity that stores can keep."""
    if capacity >= EVERYTHING:
        raise InvalidSetting(f"--capacity must be between 1 and {EVERYTHING - 1}, not {capacity}")
    if permits > capacity:
        raise InvalidSetting(f"--permits {permits} can never fit into --capacity {capacity}")
    return permits


class ExecFailed(Exception):
    """The command could not be executed."""

    def __init__(self, errno: int) -> None:
        super().__init__(errno)
        self.errno = errno

    def __str__(self) -> str:
        if exit_codes.of_exec(self.errno) == exit_codes.NOT_FOUND:
            return "command not found; give its path, or have it in $PATH"
        return f"cannot be executed: {os.strerror(self.errno).lower()}"


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
