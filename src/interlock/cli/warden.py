"""The warden: a process of its own that starts the command, and ends it in time whatever happens to us.

    interlock run (holds and renews the lease)
      └─ warden (this file: knows until when, and nothing else)
           └─ the command ─ whatever it starts

It is a dead man's switch: the command lives until an instant, and each renewal moves the instant. So the
command is over before the lease ends also when the holder of the lease is stopped, hangs, or cannot reach its
store; and it is killed at once when the holder is killed, for then the pipe of orders ends.

Whom it ends. A signal that was sent to `interlock run` goes to the command alone, as if there were no
wrapper. The loss of a lease ends everything below the warden: of `sh -c "a; b"` the shell would die
and `a` write on under another's lock. Not done: a process group of its own for the command. The group
in the foreground of a terminal must stay one, or Ctrl-C, Ctrl-Z and `interlock run … | less` break.

It is forked before there are threads, and imports nothing of interlock but the clock.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from interlock._support import clock
from interlock.cli import process_tree, termination

RELAYED_SIGNALS = tuple(
    getattr(signal, name)
    for name in (
        "SIGTERM",
        "SIGINT",
        "SIGHUP",
        "SIGQUIT",
        "SIGUSR1",
        "SIGUSR2",
        "SIGWINCH",
        "SIGTSTP",
        "SIGCONT",
    )
    if hasattr(signal, name)
)
BLOCKED_SIGNALS = (
    *RELAYED_SIGNALS,
    *(getattr(signal, name) for name in ("SIGTTIN", "SIGTTOU") if hasattr(signal, name)),
)
"""Blocked in the warden, which must not stop or end with the rest of its group: see `Warden._relay`."""
OPPOSITE_SIGNAL: dict[int, int] = (
    {signal.SIGTSTP: signal.SIGCONT, signal.SIGCONT: signal.SIGTSTP} if hasattr(signal, "SIGTSTP") else {}
)

MAX_SLEEP_S = 1.0  # a suspended machine's sleep does not count; after waking we must look soon
MIN_INHERITED_DESCRIPTOR = 100  # the least number of the descriptor that a command inherits
KILL_TIMEOUT_S = 5.0  # seconds with processes that do not even die of SIGKILL


class Duty(NamedTuple):
    """The command that a warden is to run, and the bounds of its time; the lease follows later."""

    argv: list[str]
    resource: str
    ttl: float
    grace: float


class Warden:
    """Serves one holder: reads orders, writes reports, one line each.

    orders: `start TOKEN DEADLINE` once, `until DEADLINE` after a renewal, `lost` when the store said so,
    `signal N`. Reports: `started PID` or `failed ERRNO`, `ending`, `killing`, and at the end `exited STATUS
    ENDED`: the status of wait(2), and 1 if the warden has ended the command.
    """

    def __init__(
        self, duty: Duty, orders: int, reports: int, mask: set[int], prctl: Callable[..., Any] | None
    ) -> None:
        self._duty = duty
        self._orders = orders
        self._reports = reports
        self._mask = mask  # the command's: ours blocks what is to be relayed
        self._buffer = b""
        self._prctl = prctl
        self._child = 0
        self._early: list[int] = []  # signals for a command that had not started yet
        self._status: int | None = None
        self._alone = False  # nobody is below us any more
        self._deadline = 0.0
        self._kill_at: float | None = None  # once the command must end
        self._killing = False

    def serve(self) -> NoReturn:
        """Do one holder's bidding until the command has ended or the holder has gone."""
        try:
            process_tree.adopt_orphans(self._prctl)
            process_tree.be_called(b"interlock ward", self._prctl)  # the kernel takes 15 letters
            bell, ringer = os.pipe()
            os.set_blocking(ringer, False)
            signal.set_wakeup_fd(ringer, warn_on_full_buffer=False)
            signal.signal(signal.SIGCHLD, lambda number, frame: None)
            while not self._finished():
                ready = select.select([self._orders, bell], [], [], self._nap())[0]
                if bell in ready:
                    os.read(bell, 4096)
                if self._orders in ready and not self._obey():  # the holder has gone: nobody renews any more
                    process_tree.send(self._below(), signal.SIGKILL)
                    process_tree.kill_below(os.getpid(), KILL_TIMEOUT_S)
                    break
                self._reap()
                self._keep_time()
        except BaseException as error:
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            os._exit(0)  # nothing of the holder's may be cleaned up here: not its buffers, not its atexit

    def _finished(self) -> bool:
        """The command has ended; and all that it left behind, if it had to end."""
        if self._status is None or not (self._alone or self._kill_at is None):
            return False
        self._report(f"exited {self._status} {0 if self._kill_at is None else 1}")
        return True

    # ---- orders --------------------------------------------------------------------

    def _obey(self) -> bool:
        """Carry out what has come; False when the holder is gone."""
        came = os.read(self._orders, 4096)
        if not came:
            return False
        *lines, self._buffer = (self._buffer + came).split(b"\n")
        for line in lines:
            word, *values = line.decode("ascii").split()
            if word == "start":
                self._begin(values)
            elif word == "until":
                self._deadline = max(self._deadline, float(values[0]))
            elif word == "lost":
                # There is nothing to be in time for any more, so the command gets the whole grace.
                self._end(clock.now() + self._duty.grace)
            elif word == "signal":
                self._relay(int(values[0]))
        return True

    def _report(self, line: str) -> None:
        try:
            os.write(self._reports, line.encode("ascii") + b"\n")
        except OSError:
            pass  # the holder is gone; the orders' end tells us so

    def _relay(self, number: int) -> None:
        """Pass a signal on to the command, unless the command has got it already.

        Ctrl-C, and `kill -- -GROUP`, reach each process of the group by itself; then it is pending here as
        well. Twice would be once too often: many programs take a second Ctrl-C as the order to drop
        everything.
        """
        if _came_here_too(number) and self._child and _group(self._child) == os.getpgrp():
            return
        if not self._child:
            self._early.append(number)
        elif self._status is None:  # not reaped, so the number is still this process's own
            process_tree.send([self._child], number)

    # ---- the command ------------------------------------------------------------------

    def _begin(self, values: list[str]) -> None:
        token, deadline, *liveness_byte = values
        try:
            if liveness_byte:
                _lock_liveness_byte(os.fsdecode(bytes.fromhex(liveness_byte[0])), int(liveness_byte[1]))
        except OSError as error:
            # If the holder were killed, its store would let the next in while the command still runs.
            self._report(f"failed {error.errno}")
        else:
            self._start(token, float(deadline))

    def _start(self, token: str, deadline: float) -> None:
        self._deadline = deadline
        environment = {
            **os.environ,
            "INTERLOCK_RESOURCE": self._duty.resource,
            "INTERLOCK_TOKEN": token,
            "INTERLOCK_TTL": f"{self._duty.ttl:g}",
            "INTERLOCK_DEADLINE": f"{deadline:.6f}",
        }
        warden = os.getpid()
        failure_in, failure_out = os.pipe()  # closed by a successful exec
        for number in signal.sigpending():  # what came before the command cannot have reached it
            _discard(number)
        self._child = os.fork()
        if self._child == 0:
            self._become_command(warden, environment, failure_out)
        os.close(failure_out)
        failure = os.read(failure_in, 16)
        os.close(failure_in)
        if failure:
            os.waitpid(self._child, 0)
            self._child = 0
            self._report(f"failed {failure.decode('ascii')}")
            return
        self._report(f"started {self._child}")
        for number in self._early:
            process_tree.send([self._child], number)

    def _become_command(self, warden: int, environment: dict[str, str], failure_out: int) -> NoReturn:
        """In the forked child: be as if the shell had started us, but for our end; then exec."""
        failure = errno.ENOEXEC
        try:
            process_tree.die_with(warden, self._prctl)
            for name in ("SIGPIPE", "SIGXFSZ"):  # which Python ignores
                if hasattr(signal, name):
                    signal.signal(getattr(signal, name), signal.SIG_DFL)
            for number in RELAYED_SIGNALS:  # what nohup ignores stays ignored
                if signal.getsignal(number) is not signal.SIG_IGN:
                    signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            os.execvpe(self._duty.argv[0], self._duty.argv, environment)
        except OSError as error:
            failure = error.errno or failure
        finally:
            os.write(failure_out, str(failure).encode("ascii"))
            os._exit(127)

    def _reap(self) -> None:
        """Take note of the dead, adopted ones too."""
        while self._child:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._alone = True
                return
            if process == 0:
                return
            if process == self._child:
                self._status = status

    # ---- the end ------------------------------------------------------------------------

    def _nap(self) -> float:
        if not self._child:
            return MAX_SLEEP_S
        if self._killing:
            return process_tree.KILL_PERIOD_S
        end = (
            termination.term_at(self._deadline, self._duty.ttl, self._duty.grace)
            if self._kill_at is None
            else self._kill_at
        )
        return min(MAX_SLEEP_S, max(0.0, end - clock.now()))

    def _keep_time(self) -> None:
        if not self._child or (self._status is not None and self._kill_at is None):
            return
        now = clock.now()
        if self._kill_at is None and now >= termination.term_at(
            self._deadline, self._duty.ttl, self._duty.grace
        ):
            self._end(min(now + self._duty.grace, termination.kill_at(self._deadline, self._duty.ttl)))
        if self._kill_at is not None and now >= self._kill_at:
            if not self._killing:
                self._killing = True
                self._report("killing")
            process_tree.send(self._below(), signal.SIGKILL)

    def _end(self, kill_at: float) -> None:
        """Ask everything below us to end, and remember until when."""
        if self._kill_at is not None or not self._child or self._status is not None:
            return
        self._kill_at = kill_at
        self._report("ending")
        below = self._below()
        process_tree.send(below, signal.SIGTERM)
        process_tree.send(below, signal.SIGCONT)  # a stopped process would not handle SIGTERM

    def _below(self) -> list[int]:
        below = process_tree.descendants(os.getpid())
        if self._child and self._status is None and self._child not in below:
            below.append(self._child)  # where there is no /proc
        return below


def _lock_liveness_byte(path: str, byte: int) -> None:
    """Keep a byte of a file locked for as long as we, the command, or anything it starts has this descriptor.

    The file is empty, so the descriptor gives nothing away, whatever user the command becomes. High up, where
    no script expects a descriptor of its own; and read-only, so that a stray write harms nothing.
    """
    import fcntl
    import resource

    from interlock._support.bytelock import lock

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = os.open(path, os.O_RDONLY)
    high = fcntl.fcntl(
        opened,
        fcntl.F_DUPFD,
        min(MIN_INHERITED_DESCRIPTOR, limit // 2) if limit > 0 else MIN_INHERITED_DESCRIPTOR,
    )
    lock(high, byte)
    os.close(opened)


def _came_here_too(number: int) -> bool:
    """Whether a signal to the holder was sent to its whole group; forgets that it was.

    A stop and a continue wipe each other out while they are pending. So if the other of the two is pending,
    it came later and to the whole group: relayed now, a Ctrl-Z would stop a command that `fg` has just
    continued, and nobody would continue it.
    """
    pending = signal.sigpending()
    if number in pending:
        _discard(number)
        return True
    return number in OPPOSITE_SIGNAL and OPPOSITE_SIGNAL[number] in pending


def _discard(number: int) -> None:
    """Drop a signal that is blocked and pending; it may have been wiped out meanwhile, and then sigwait(2)
    would never return.
    """
    action = signal.getsignal(number)
    signal.signal(number, signal.SIG_IGN)  # which drops what is pending, also where it is blocked
    signal.signal(number, action)


def _group(process: int) -> int:
    try:
        return os.getpgid(process)
    except OSError:
        return 0
