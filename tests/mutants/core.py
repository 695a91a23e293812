"""Deliberate bugs in the algorithms and in the reference store."""

from __future__ import annotations

from tests.mutants.mutant import (
    Code,
    Mutant,
    Tests,
    cancelled,
    conforming,
    crowded,
    directed,
    hasty,
    inherited,
    mutant,
    reentered,
    watched,
)

MEMORY = "backends/memory.py"
LEASE = "_core/lease.py"
KEEPER = "_core/keeper.py"
CLIENT = "_core/client.py"
HOLDING = "_core/holding.py"
ATTEMPT = "_core/attempt.py"
WAITER = "_core/waiter.py"
ADMISSION = "_core/admission.py"
REMOVAL = "_core/removal.py"
COHORTS = "_core/cohort.py"
IDENTITY = "_runtime/identity.py"

STORE: list[Mutant] = [
    mutant(
        "release without compare",
        "a waiter that gives up frees the holder's lock",
        Code(
            MEMORY,
            "MemoryStore.release",
            "row = next((row for row in queue if row.id == id), None)",
            "row = queue[0] if queue else None",
        ),
        tests=directed("timed_out_does_not"),
    ),
    mutant(
        "a holder's renewal keeps a place",
        "whoever is made to believe that it holds goes on believing",
        Code(
            MEMORY,
            "MemoryStore._renew",
            "if row is None or (row.admitted_at is None and (not renewal.waiting)):\n    ...",
            "if row is None:\n    ...",
        ),
        tests=conforming("only_waits_is_never_renewed"),
    ),
    mutant(
        "renewal is an upsert",
        "a holder that lapsed comes back beside the next one",
        Code(
            MEMORY,
            "MemoryStore._renew",
            ("if row is None or (row.admitted_at is None and (not renewal.waiting)):\n    return Gone()"),
            (
                "if row is None:\n"
                "    claim = Claim(renewal.resource, renewal.id, renewal.ttl)\n"
                "    row = self._row(claim, space.next_number(), now)\n"
                "    space.queues.setdefault(renewal.resource, []).append(row)"
            ),
        ),
        tests=conforming("nothing_is_re_created"),
    ),
    mutant(
        "renewal may shorten",
        "a late, short renewal takes away what the holder counts on",
        Code(
            MEMORY,
            "MemoryStore._renew",
            "row.lapses = max(row.lapses, now + renewal.ttl)",
            "row.lapses = now + renewal.ttl",
        ),
        tests=conforming("nearer"),
    ),
    mutant(
        "dead waiters stay",
        "a killed waiter at the front blocks everybody for ever",
        Code(
            MEMORY,
            "Space.live",
            "queue[:] = [row for row in queue if row.lapses > now]",
            "queue[:] = [e for e in queue if e.lapses > now or e.admitted_at is None]",
        ),
        Code(
            MEMORY,
            "Space.settle",
            "row.admitted_at = now",
            "row.admitted_at = now\nrow.lapses = now + row.claim.ttl",
        ),
        tests=directed("dead_waiters"),
    ),
    mutant(
        "a token is given twice",
        "two holders write under one token",
        Code(
            MEMORY,
            "Space.next_number",
            "self.last = max(self.last + 1, self.floor())",
            "self.last = max(self.last, self.floor())",
        ),
        Code(MEMORY, "Space.next_number", "self.last += block - 1", ""),
        tests=directed("wall_clock_set_back"),
    ),
    mutant(
        "tokens are not floored by the clock",
        "after the store lost its memory every new token is stale",
        Code(MEMORY, "Space.next_number", "self.last = max(self.last + 1, self.floor())", "self.last += 1"),
        tests=directed("tokens_rise"),
    ),
    mutant(
        "a reader passes a writer that waits",
        "the writer starves",
        Code(
            MEMORY,
            "MemoryStore.claim",
            "ahead = sum((row.permits for row in queue[:place]))",
            "ahead = sum((e.permits for e in queue[:place] if e.admitted_at is not None))",
        ),
        tests=directed("reader_does_not_pass"),
    ),
    mutant(
        "repeating a claim enters twice",
        "after a lost reply a waiter waits for itself",
        Code(
            MEMORY,
            "MemoryStore.claim",
            "place = next((i for i, row in enumerate(queue) if row.id == claim.id), len(queue))",
            "place = len(queue)",
        ),
        tests=conforming("repeating_a_claim_never_enters_twice"),
    ),
    mutant(
        "an eviction is forgotten at once",
        "who was evicted simply queues again",
        Code(
            MEMORY,
            "MemoryStore.evict",
            "space.evicted[row.id] = (reason, now + max(REMEMBERED_S, row.claim.ttl))",
            "pass",
        ),
        tests=conforming("evict and not Face and not Lease"),
    ),
    mutant(
        "whoever leaves wakes nobody",
        "every hand-off waits for a lapse",
        Code(MEMORY, "Space.__init__", "self.ring = self.waiters.wake", "self.ring = lambda topic: None"),
        tests=directed("reader_does_not_pass or timed_out_does_not"),
    ),
]

ACQUIRING: list[Mutant] = [
    mutant(
        "deadline from the reply's time",
        "a slow network makes two leases valid at once",
        Code(
            ATTEMPT,
            "Attempt.run",
            (
                "try:\n"
                "    answer = await client.store.claim(self.claim, patience)\n"
                "except StoreUnavailable as error:\n"
                "    self._stands = not isinstance(error, Unreached)\n"
                "    answer = await self.ask(error)\n"
                "except StoreUnfit:\n"
                "    self._refused = True\n"
                "    raise"
            ),
            (
                "try:\n"
                "    answer = await client.store.claim(self.claim, patience)\n"
                "except StoreUnavailable as error:\n"
                "    self._stands = not isinstance(error, Unreached)\n"
                "    answer = await self.ask(error)\n"
                "except StoreUnfit:\n"
                "    self._refused = True\n"
                "    raise\n"
                "self.asked = self._runtime.now()"
            ),
        ),
        tests=directed("slow_reply"),
    ),
    mutant(
        "no take-back on cancel",
        "a cancelled acquire holds the lock for a whole ttl",
        Code(
            ATTEMPT,
            "Attempt.run",
            "try:\n    await self.undo()\nfinally:\n    ...",
            "...",
        ),
        tests=cancelled("acquire_leaves_nothing"),
    ),
    mutant(
        "no take-back on timeout",
        "who gave up still stands in the queue",
        Code(
            WAITER,
            "Waiter.until_granted",
            "await attempt.take_back(FOR_EVER if attempt.until is None else attempt.until)",
            "",
        ),
        tests=directed("timed_out_does_not"),
    ),
    mutant(
        "a lost reply is answered with a new id",
        "the caller waits for its own forgotten claim",
        Code(
            ATTEMPT,
            "Attempt.ask",
            "tries += not isinstance(failure, HeldUp)",
            (
                "tries += not isinstance(failure, HeldUp)\n"
                "self.claim = replaced(self.claim, id=self._runtime.fresh_id())"
            ),
        ),
        tests=directed("recognised_as_our_own"),
    ),
    mutant(
        "a place is not kept while waiting",
        "who waits longer than a place lives goes back to the end of the queue",
        Code(WAITER, "Waiter._keep_place", "client.keeper.keep(place)", "pass"),
        tests=directed("keeps_its_place"),
    ),
    mutant(
        "a grant told with the wake-up is believed however old it is",
        "a waiter that was paused acts on a lease that has lapsed",
        Code(
            WAITER,
            "Waiter._pause",
            "granted = Granted(granted.token, granted.ttl, place.refreshed, granted.unconfirmed)",
            "granted = Granted(granted.token, granted.ttl, self._runtime.now(), granted.unconfirmed)",
        ),
        tests=directed("heard_of_too_late"),
    ),
    mutant(
        "min_hold counts from the last renewal of a place",
        "a crowd of waiters runs a job that must not run twice a minute, one right after the other",
        Code(
            LEASE,
            "Lease.__init__",
            "self._free_from = holding.client.runtime.now() + terms.min_hold if terms.min_hold else 0.0",
            "self._free_from = counts_from + terms.min_hold if terms.min_hold else 0.0",
        ),
        tests=Tests("tests/every_store/test_conformance.py", "min_hold_keeps_those_out and Redis"),
    ),
    mutant(
        "what is owed is forgotten",
        "a store that was away for a moment keeps the claim for a whole ttl",
        Code(
            REMOVAL,
            "release_later",
            "client.keeper.release_later(PendingRelease(claim.resource, claim.id, free_from, due=due, until=until))",
            "PendingRelease(claim.resource, claim.id, free_from, due=due, until=until)",
        ),
        tests=cancelled("pays_its_debt"),
    ),
    mutant(
        "requests know nothing of the caller's timeout",
        "a call with a timeout hangs as long as the store does",
        Code(
            "_core/timing.py",
            "patience",
            "return min(IO_TIMEOUT, max(MIN_REQUEST_S, left + GRACE_S))",
            "return IO_TIMEOUT",
        ),
        tests=directed("returns_in_time"),
    ),
]

LEASES: list[Mutant] = [
    mutant(
        "the state is not compared with the clock",
        "a paused holder goes on as if nothing had happened",
        Code(
            LEASE,
            "Lease.state",
            (
                "if self._state not in FINAL and self._holding.client.runtime.now() >= self._deadline:\n"
                "    ..."
            ),
            "if False:\n    ...",
        ),
        tests=directed("paused_holder"),
    ),
    mutant(
        "a late renewal is accepted after the deadline",
        "a lease that was reported lost is valid again, beside the next",
        Code(
            LEASE,
            "Lease._extend",
            "if self._state in FINAL or self._runtime.now() >= self._deadline:\n    ...",
            "if self._state is RELEASED:\n    ...",
        ),
        tests=directed("does_not_bring_a_lease_back"),
    ),
    mutant(
        "the keeper dies of an exception",
        "one bug in a store, and every lock of the client lapses",
        Code(
            KEEPER,
            "Keeper._run",
            "try:\n    ...\nexcept Exception as error:\n    ...",
            "try:\n    ...\nexcept StoreUnavailable as error:\n    ...",
        ),
        Code(
            KEEPER,
            "Keeper._renew",
            "try:\n    ...\nexcept Exception as error:\n    ...",
            "try:\n    ...\nexcept StoreUnavailable as error:\n    ...",
        ),
        tests=directed("keeper_survives"),
    ),
    mutant(
        "the keeper renews for the dead",
        "a worker that died holds its lock as long as the process lives",
        Code(LEASE, "Lease._renewal", "if not self._owner.alive():\n    ...", "if False:\n    ..."),
        tests=directed("worker_that_died"),
    ),
    mutant(
        "a renewal waits up to the deadline",
        "one lost packet loses the lock",
        Code(
            KEEPER,
            "Keeper._patience",
            "return max(needed, min(IO_TIMEOUT, (first - now) / 2))",
            "return max(needed, min(IO_TIMEOUT, first - now))",
        ),
        tests=directed("one_lost_answer"),
    ),
    mutant(
        "renewals count from the reply",
        "the holder believes longer than the store remembers",
        Code(
            KEEPER,
            "Keeper._renew",
            "kept._on_reply(asked, answer)",
            "kept._on_reply(self._runtime.now(), answer)",
        ),
        tests=directed("slow_reply"),
    ),
    mutant(
        "a loss does not cancel the body",
        "an async body works on without its lock",
        Code(
            LEASE,
            "Lease._wants_interrupt",
            "if not self._bodies or self._interrupted:\n    ...",
            "if True:\n    ...",
        ),
        tests=directed("cancels_the_body"),
    ),
    mutant(
        "a released lease is still renewed",
        "a renewal reaches the store after the release",
        Code(
            HOLDING,
            "Holding.unregister_lease",
            "if client.keeper.newly_kept.pop(lease, self) is not None:\n    ...",
            "if False:\n    ...",
        ),
        Code(
            LEASE,
            "Lease._renewal",
            "if not (renewed or shrinks or self._state is DOUBTFUL) or self._state in FINAL:\n    ...",
            "if not (renewed or shrinks or self._state is DOUBTFUL):\n    ...",
        ),
        tests=cancelled("release_is_done"),
    ),
]

OTHERS: list[Mutant] = [
    mutant(
        "a multilock keeps the first when the second fails",
        "a timed-out transfer blocks an account for ever",
        Code("_core/multilock.py", "MultiAttempt.run", "await self.undo()", ""),
        tests=directed("multilock_that_gives_up"),
    ),
    mutant(
        "a multilock keeps the first when it is cancelled",
        "a cancelled transfer blocks an account for ever",
        Code(
            "_core/multilock.py", "MultiAttempt.run", "await self._multi.client.runtime.finish(self.undo)", ""
        ),
        tests=cancelled("several"),
    ),
    mutant(
        "an update of unknown fate is made again",
        "an order is counted twice",
        Code("_core/register.py", "Cell.change", "if not (sure or again):\n    ...", "if False:\n    ..."),
        tests=directed("fate_nobody_knows"),
    ),
    mutant(
        "a latch that is reset twice takes back what others have counted down between",
        "a job waits for ever for parts that are done",
        Code(
            "_core/register.py",
            "LatchCell.reset",
            "await self._cell.change(decide)",
            "await self._cell.change(decide, again=True)",
        ),
        tests=Tests("tests/field/test_memory.py", "takes_back_nothing"),
    ),
    mutant(
        "a reset forgets that the latch was open",
        "a waiter that wakes up late waits for the next opening, perhaps for ever",
        Code(
            "_core/register.py",
            "LatchCell.wait",
            "True if left == 0 or opened > first[0] else None",
            "True if left == 0 else None",
        ),
        tests=Tests("tests/conformance/test_memory.py", "TestLatchesSync and reset_at_once"),
    ),
    mutant(
        "an interrupted waiter swallows its notification",
        "the next waiter sleeps beside a full queue",
        Code("_core/condition.py", "Wait._pass_on", "await self._condition.wake(1)", ""),
        tests=cancelled("notification_that_meets"),
    ),
    mutant(
        "an interrupted arrival still counts",
        "a barrier opens for too few",
        Code(
            "_core/barrier.py",
            "Visit.run",
            "await self._runtime.finish(lambda: self._withdraw(0.0 if hurry else FOR_EVER))",
            "",
        ),
        tests=cancelled("arrival"),
    ),
    mutant(
        "re-entry asks the store again",
        "a thread waits for itself for ever",
        Code(
            "_core/reentry.py",
            "Reentrant.entry",
            "if entry is not None and (entry.over or entry.lease._state is State.RELEASED):\n    ...",
            "if entry is not None:\n    ...",
        ),
        tests=cancelled("entered"),
    ),
]

INTERRUPTED: list[Mutant] = [
    mutant(
        "nobody watches a statement",
        "a body that was cut short is renewed for ever",
        Code(
            "_runtime/with_statements.py",
            "ExitMethod.__get__",
            "statement.watch = watch = Watch(method[0], _over.append)",
            "statement.watch = watch = Watch(method[0])",
        ),
        tests=reentered("cut_short or traceback"),
    ),
    mutant(
        "the exit object stands in a frame",
        "a traceback that is kept keeps a lock",
        Code(
            "_runtime/with_statements.py",
            "ExitMethod.__get__",
            "watch.statement = _here.statement = statement",
            (
                "watch.statement = _here.statement = statement\n"
                "statement.manager = (statement.manager, method[0])"
            ),
        ),
        Code(
            "_runtime/with_statements.py",
            "entered",
            (
                "if statement is not None and (statement.manager is manager or statement.manager is type(manager)):\n"
                "    ..."
            ),
            (
                "if statement is not None and (statement.manager[0] is manager or statement.manager[0] is type(manager)):\n"
                "    ..."
            ),
        ),
        tests=reentered("cut_short or traceback"),
    ),
    mutant(
        "the exit object stands in a variable",
        "a frame that a profiler keeps keeps a lock",
        Code("_runtime/with_statements.py", "ExitMethod.__get__", "return method.pop()", "return method[0]"),
        tests=watched("profiler"),
    ),
    mutant(
        "a look at all frames keeps them",
        "the variables of whoever called the sweep live until the garbage collector runs",
        Code(
            "_runtime/with_statements.py", "_running", "frames, frame = ([], None)", "frame = sys._getframe()"
        ),
        tests=watched("frames_of_all"),
    ),
    mutant(
        "an ExitStack waits for the garbage collector",
        "a lock whose exit was interrupted there is renewed for ever",
        Code(
            "_runtime/with_statements.py",
            "sweep",
            "if statement.interrupted():\n    ...",
            "if False:\n    ...",
        ),
        tests=reentered("waits_for_no_collector and memory"),
    ),
    mutant(
        "a release does not look whether its thread is inside",
        "a garbage collector that ends a generator hangs its thread for ever",
        Code(
            LEASE,
            "Lease._give_back",
            "if client.mutex._is_owned() or (self._turn is None and client.store.inside()):\n    ...",
            "if False:\n    ...",
        ),
        tests=reentered("inside_a_mutex"),
    ),
    mutant(
        "each pending release waits for the part that hangs",
        "forty waiters that gave up cost a lease on a healthy node",
        Code(
            KEEPER,
            "Keeper._release_pending",
            (
                "part = self._store.part(pending.resource)\n"
                "if part not in silent:\n"
                "    patience = max(0.01, min(PENDING_TRY_S, left))\n"
                "    try:\n"
                "        await self._store.release(pending.resource, pending.id, pending.linger(now), patience)\n"
                "    except Exception as error:\n"
                "        silent[part] = str(error)\n"
                "    self._note_wait(now + patience)\n"
                "    if part not in silent:\n"
                "        self._pending.pop(pending, None)\n"
                "        continue"
            ),
            (
                "part = self._store.part(pending.resource)\n"
                "if True:\n"
                "    patience = max(0.01, min(PENDING_TRY_S, left))\n"
                "    try:\n"
                "        await self._store.release(pending.resource, pending.id, pending.linger(now), patience)\n"
                "    except Exception as error:\n"
                "        silent[part] = str(error)\n"
                "    self._note_wait(now + patience)\n"
                "    if part not in silent:\n"
                "        self._pending.pop(pending, None)\n"
                "        continue"
            ),
        ),
        Code(KEEPER, "Keeper._release_pending", "if left <= 0:\n    return", ""),
        Code(
            KEEPER,
            "Keeper._release_pending",
            "patience = max(0.01, min(PENDING_TRY_S, left))",
            "patience = PENDING_TRY_S",
        ),
        tests=hasty("pending_releases"),
    ),
    mutant(
        "the keeper tells listeners itself",
        "a slow log handler costs every lease of its process",
        Code(CLIENT, "Client.emit", "if self.keeper.here():\n    ...", "if False:\n    ..."),
        tests=hasty("listener"),
    ),
    mutant(
        "a cancelled caller waits for the store",
        "a time limit of 0.2 s takes ten",
        Code(
            ATTEMPT,
            "Attempt._take_back_quietly",
            "soon = self._runtime.now() + timing.INTERRUPTED_RELEASE_S",
            "soon = FOR_EVER",
        ),
        tests=hasty("cancelled_task"),
    ),
    mutant(
        "a cancelled close waits for the store",
        "a program that must end in a second needs seven",
        Code(
            "_core/client.py",
            "Client.close",
            "self.keeper.stop_soon()\nawait self.runtime.finish(lambda: self._end_soon(closer))",
            "self.keeper.stop_soon()\nawait self.runtime.finish(lambda: self._end(closer))",
        ),
        tests=hasty("a_close"),
    ),
    mutant(
        "closing does not wait for those who are asking",
        "a claim that nobody has stands for a whole ttl",
        Code(CLIENT, "Client._end", "await self._see_attempts_end()", ""),
        tests=hasty("closing_beside"),
    ),
]

COHORT: list[Mutant] = [
    mutant(
        "an heir has the token of its lender",
        "a late write of the lender passes for the heir's",
        Code(
            LEASE,
            "Lease._inherit",
            "self._claim, self._token = (lender._claim, lender._token + 1)",
            "self._claim, self._token = (lender._claim, lender._token)",
        ),
        tests=inherited("rising_tokens"),
    ),
    mutant(
        "tokens that are passed on are not reserved",
        "another client gets the same token",
        Code(MEMORY, "Space.next_number", "self.last += block - 1", ""),
        tests=conforming("tokens_of_a_block"),
    ),
    mutant(
        "an heir counts on a whole ttl",
        "it believes longer than the store remembers",
        Code(
            LEASE,
            "Lease._inherit",
            "self._deadline, self._last_try, self._short = (lender._deadline, lender._last_try, lender._short)",
            "",
        ),
        tests=inherited("inherits_what_is_left"),
    ),
    mutant(
        "a cancelled heir keeps the claim",
        "everybody waits for a whole ttl",
        Code(ATTEMPT, "Attempt._leave_cohort", "await self._decline(member, turn)", "pass"),
        tests=inherited("cancelled_when_its_turn_comes"),
    ),
    mutant(
        "a lost lease leaves those behind it alone",
        "they sleep out their turn, and all who come later wait behind a head that is gone",
        Code(HOLDING, "Holding.lost", "self.client.cohorts.dissolve(lease)", ""),
        tests=inherited("was_lost"),
    ),
    mutant(
        "whoever stands behind the head inherits",
        "one that began after another's grant has the lower token",
        Code(
            COHORTS,
            "Cohorts.begin_turn",
            "if line[0].began >= before or line[0].ttl != lease._claim.ttl:\n    ...",
            "if line[0].ttl != lease._claim.ttl:\n    ...",
        ),
        tests=inherited("is_no_heir_before"),
    ),
    mutant(
        "a claim that was gone when it was released has kept others out",
        "one that began after another's grant has the lower token",
        Code(
            LEASE,
            "Lease._release_turn",
            "if stood:\n    client.cohorts.stood(claim, sent)",
            "client.cohorts.stood(claim, sent)",
        ),
        tests=inherited("while_our_own_claim_stood"),
    ),
    mutant(
        "those who came while a claim of ours stood ask the store again",
        "a cohort of tasks that hold for a moment asks the store for every second grant",
        Code(COHORTS, "Cohorts.stood", "member_of(head).client_held_until = until", "pass"),
        tests=inherited("while_our_own_claim_stood"),
    ),
    mutant(
        "a waiter inherits whomever the store names",
        "one that began after another's grant holds beside it, with the lower token",
        Code(
            COHORTS,
            "Cohorts.join_heirs",
            "stands = holder.id == claim.id and holder.token == lease._stands_as",
            "stands = True",
        ),
        tests=inherited("does_not_inherit_what_is_lost"),
    ),
    mutant(
        "a waiter inherits though others are ahead",
        "the waiters of other clients are overtaken",
        Code(
            COHORTS,
            "Cohorts.join_heirs",
            "if busy.ahead != 1 or holder is None or resource not in self.passable:\n    ...",
            "if holder is None or resource not in self.passable:\n    ...",
        ),
        tests=inherited("not_overtaken"),
    ),
    mutant(
        "a head takes all along who stand behind it",
        "one that the store's answer is older than has a token that is too low",
        Code(
            COHORTS,
            "Cohorts._inherit_from",
            "if line[0].began >= head.attempt.asked or line[0].ttl != head.ttl:\n    ...",
            "if line[0].ttl != head.ttl:\n    ...",
        ),
        tests=inherited("lined_up_after"),
    ),
    mutant(
        "the place of an heir stays in the store",
        "the lock goes to a waiter that is long gone",
        Code(LEASE, "Lease._release_turn", "await remove(client, place, 0.0, until)", "pass"),
        tests=inherited("leaves_no_place"),
    ),
    mutant(
        "the place behind a lost lease is forgotten",
        "everybody waits for a place that nobody stands in",
        Code(COHORTS, "Cohorts._scatter", "release_later(client, left, 0.0, pause=0.0)", ""),
        tests=inherited("behind_a_lease_that_is_lost"),
    ),
    mutant(
        "an heir keeps its place",
        "nobody else may stand there, and each waiter of the client makes one more",
        Code(COHORTS, "Cohorts.arrived", "place.waiter = None", "pass"),
        tests=inherited("stands_in_the_place"),
    ),
    mutant(
        "a new head asks at once though heirs are left",
        "those who line up behind it have come too late for its question, and each must be asked for again",
        Code(
            COHORTS,
            "Cohorts._stand_by",
            ("if turn is None or not turn.heirs or turn.lender._claim.ttl != attempt.claim.ttl:\n    ..."),
            "if True or turn.lender._claim.ttl != attempt.claim.ttl:\n    ...",
        ),
        tests=inherited("when_the_last_heir"),
    ),
    mutant(
        "nobody calls the head that stands by",
        "a free lock lies idle until it has waited long enough",
        Code(LEASE, "Lease._hand_over", "client.cohorts.call_head(turn)", ""),
        tests=inherited("when_the_last_heir"),
    ),
    mutant(
        "a turn that ends early forgets the head that stands by",
        "a free lock lies idle until it has waited long enough",
        Code(
            COHORTS,
            "Cohorts._scatter",
            "if leader is not None and leader.turn is None:\n    first = leader",
            "if leader is not None and leader.turn is None:\n    pass",
        ),
        tests=inherited("turn_ends_before"),
    ),
    mutant(
        "who stands in another's place is evicted with it",
        "a waiter fails for what an operator did to another",
        Code(
            ATTEMPT,
            "Attempt.after_eviction",
            "if member is None or not member.inherited_by:\n    ...",
            "if True:\n    ...",
        ),
        tests=inherited("operator_who_evicts"),
    ),
]

SHORTCUTS: list[Mutant] = [
    mutant(
        "a line is described once for all",
        "an operator looks for the wrong thread",
        Code(
            IDENTITY,
            "describe",
            "if caller is owner and there is process:\n    ...",
            "if caller is not None and there is process:\n    ...",
        ),
        tests=Tests("tests/faces/test_call_sites.py", "each_caller"),
    ),
    mutant(
        "a forked child is described as its parent",
        "an operator stops the wrong process",
        Code(
            IDENTITY,
            "describe",
            "if caller is owner and there is process:\n    ...",
            "if caller is owner:\n    ...",
        ),
        tests=Tests("tests/faces/test_call_sites.py", "forked_child"),
    ),
    mutant(
        "the first lease of an object is released",
        "a thread ends the lease of another",
        Code(
            HOLDING,
            "Holding.release",
            "if len(leases) == 1 and (not self.older):\n    ...",
            "if leases and (not self.older):\n    ...",
        ),
        tests=Tests("tests/faces/test_owners.py", "older_one"),
    ),
    mutant(
        "the only lease of a lock stands for none that were lost before it",
        "a release that should hear of a loss gives back what another holds",
        Code(
            HOLDING,
            "Holding.release",
            "if len(leases) == 1 and (not self.older):\n    ...",
            "if len(leases) == 1:\n    ...",
        ),
        tests=Tests("tests/attacks/test_after_a_loss.py", "lost_in_a_row"),
    ),
    mutant(
        "whoever awaits a release is its caller",
        "a task that holds nothing gives back what another task holds",
        Code(
            HOLDING,
            "Holding",
            (
                "def release(self) -> Coroutine[Any, Any, None]:\n"
                '    """Give back the lease that a plain `release()` of the caller means, whoever awaits it."""\n'
                "    leases = list(self.leases)\n"
                "    if len(leases) == 1 and (not self.older):\n"
                "        return leases[0]._give_back(strict=True, by=self.client.runtime.owner())\n"
                "    return self._release_of(self.client.runtime.owner())\n"
                "async def _release_of(self, owner: Owner) -> None:\n"
                "    lease = self.current(owner)\n"
                "    if self.older:\n"
                "        self._release_older(lease)\n"
                "    await lease._give_back(strict=True, by=owner)"
            ),
            (
                "def release(self) -> Coroutine[Any, Any, None]:\n"
                '    """Give back the lease that a plain `release()` of the caller means, whoever awaits it."""\n'
                "    leases = list(self.leases)\n"
                "    if len(leases) == 1 and (not self.older):\n"
                "        return leases[0]._give_back(strict=True, by=self.client.runtime.owner())\n"
                "    return self._release_of()\n"
                "async def _release_of(self) -> None:\n"
                "    owner = self.client.runtime.owner()\n"
                "    lease = self.current(owner)\n"
                "    if self.older:\n"
                "        self._release_older(lease)\n"
                "    await lease._give_back(strict=True, by=owner)"
            ),
        ),
        tests=Tests("tests/faces/test_owners.py", "a_release_that_a_task"),
    ),
    mutant(
        "a grant that comes with the wake-up is not looked at",
        "a waiter that was paused acts on a lease that has lapsed",
        Code(WAITER, "Waiter._pause", "if not attempt.usable(granted):\n    return None", ""),
        tests=directed("heard_of_too_late"),
    ),
    mutant(
        "who stands in another's place is not named",
        "an operator sees a holder that is long gone",
        Code(HOLDING, "Holding.register_lease", "due = lease._sign_soon(member.inherited_by)", "pass"),
        tests=inherited("place_of_another_is_shown"),
    ),
    mutant(
        "an heir keeps the claim that it waited with",
        "it holds what was given to another, and nobody releases what it has",
        Code(
            LEASE,
            "Lease._inherit",
            "self._claim, self._token = (lender._claim, lender._token + 1)",
            "self._token = lender._token + 1",
        ),
        tests=inherited("rising_tokens"),
    ),
    mutant(
        "an heir whose wait has ended believes that it was woken",
        "two hold at once",
        Code(
            ATTEMPT,
            "Attempt.inherited",
            "if turn is not None and turn.holder is member:\n    ...",
            "if turn is not None:\n    ...",
        ),
        tests=inherited("wait_ends_before"),
    ),
    mutant(
        "only the first of several brief waits is ended",
        "tasks stand in line behind a head that is stuck, and never ask the store themselves",
        Code("_runtime/tasks.py", "BriefWaits._tick", "self._tick_at(end)", ""),
        tests=Tests("tests/unit/test_task_signal.py", "each_brief_wait"),
    ),
    mutant(
        "the timer of brief waits is that of the loop before",
        "the first wait on a new event loop never ends",
        Code(
            "_runtime/tasks.py",
            "Tasks.signal",
            "if brief is None or brief.loop is not loop:\n    ...",
            "if brief is None:\n    ...",
        ),
        tests=Tests("tests/unit/test_task_signal.py", "another_loop"),
    ),
    mutant(
        "an heir is not woken",
        "it sleeps out its turn, with the lock in its hand",
        Code(LEASE, "Lease._hand_over", "called.set()", "pass"),
        tests=inherited("rising_tokens"),
    ),
    mutant(
        "a lease with heirs is released from inside the store",
        "a garbage collector that runs there waits for its own thread",
        Code(
            LEASE,
            "Lease._hand_over",
            "if before is RELEASED or not client.store.inside():\n    ...",
            "if True:\n    ...",
        ),
        tests=inherited("inside_the_store"),
    ),
    mutant(
        "a waiter that may inherit is forgotten at the end",
        "everybody waits for the place of a process that is gone",
        Code(
            COHORTS,
            "Cohorts.underway",
            "places = [turn.place for turn in turns if turn.place is not None]",
            "places = [turn.place for turn in turns if turn.place is not None and turn.free_place()]",
        ),
        tests=inherited("removed_at_the_end"),
    ),
    mutant(
        "who asked in a task of its own owns the lease",
        "the lease is not renewed, as its task is over",
        Code(
            "aio.py",
            "_AnyLock._acquire",
            "if lease is None or (attempt.runner is owner and type(owner) is TaskOwner):\n    ...",
            "if lease is None or type(owner) is TaskOwner:\n    ...",
        ),
        tests=Tests(
            "tests/faces/test_owners.py", "owns_what_a_task or is_renewed_for_its_caller or granted_after"
        ),
    ),
]

PLACES: list[Mutant] = [
    mutant(
        "renewals of places look at nothing",
        "a waiter that does not ask by itself waits behind the dead for ever",
        Code(
            ADMISSION,
            "asks_at_renewal",
            "return late or (place <= let_in and sum(permits[:place + 1]) <= capacity)",
            "return place > len(permits) and sum(permits[:place + 1]) <= capacity",
        ),
        tests=crowded("dead_ahead or when_it_is_let_in"),
    ),
    mutant(
        "the first waiter looks only at the claim just ahead",
        "a semaphore with a dead holder stays full while another holder lives",
        Code(
            ADMISSION,
            "asks_at_renewal",
            "watched = range(place) if place <= let_in else range(place - 1, place)",
            "watched = range(place - 1, place)",
        ),
        tests=crowded("every_holder"),
    ),
    mutant(
        "a lapse ahead is noticed when it has happened",
        "a dead waiter delays the next by a ttl and a third",
        Code(
            ADMISSION,
            "asks_at_renewal",
            "late = any((lapses_in[ahead] <= min(ttls[ahead], place_ttl) / 2 for ahead in watched))",
            "late = any((lapses_in[ahead] <= 0 for ahead in watched))",
        ),
        tests=crowded("dead_ahead"),
    ),
    mutant(
        "a waiter leaves a lapse that is near to the renewals",
        "it is let in a third of a ttl late",
        Code(
            WAITER,
            "Waiter._waits_for_ring",
            "return busy.retry_after > self._attempt.claim.place_ttl * timing.WATCHED_BY_RENEWALS_PART",
            "return True",
        ),
        tests=crowded("dead_ahead"),
    ),
    mutant(
        "every waiter asks whenever the claim ahead might have lapsed",
        "a thousand waiters keep the server busy with counting",
        Code(
            WAITER,
            "Waiter._await_turn",
            ("if granted is not None or not self._watched(busy) or (left := attempt.left()) <= 0:\n    ..."),
            "if True or (left := attempt.left()) <= 0:\n    ...",
        ),
        tests=crowded("asks_no_second_time"),
    ),
]

ENDED: list[Mutant] = [
    mutant(
        "an interrupted attempt that the keeper takes back lingers",
        "a job that never ran is skipped by everybody for its whole min_hold",
        Code(ATTEMPT, "Attempt.undo", "lease._never_used()", "pass"),
        tests=Tests("tests/attacks/test_interrupted_min_hold.py", "keeper_takes_back"),
    ),
    mutant(
        "a part that is given back early is free at once",
        "min_hold keeps nobody out",
        Code(LEASE, "Lease._shrunk", "self._deferred = self._linger() > 0", "self._deferred = False"),
        tests=Tests("tests/attacks/test_semaphore_releases.py", "stays_taken_until"),
    ),
    mutant(
        "a part that is given back early is given back with the next renewal only",
        "others wait for a third of a ttl longer than min_hold",
        Code(
            LEASE,
            "Lease._due",
            "return min(self._free_from, self._renewal_due) if self._deferred else self._renewal_due",
            "return self._renewal_due",
        ),
        tests=Tests("tests/attacks/test_semaphore_releases.py", "free_when_min_hold"),
    ),
    mutant(
        "a release that finds nothing does not ask why",
        "an evicted holder never learns the operator's reason",
        Code(LEASE, "Lease._give_back", "await self._ask_for_cause(until)", "self._cause = 'refused'"),
        tests=conforming("hear_of_its_eviction"),
    ),
    mutant(
        "a body is not told that another has released its lease",
        "it ends as if it had been alone all the time",
        Code(
            LEASE,
            "Lease._give_back",
            "if again:\n    self._check_taker()\n    return",
            "if again:\n    return",
        ),
        tests=Tests("tests/attacks/test_taken_away.py", "at_its_end and lock"),
    ),
    mutant(
        "release_on_signal takes the place of any handler",
        "a server that finishes its work in hand has lost its leases",
        Code(
            "_api/shutdown.py",
            "release_on_signal",
            "if before is signal.SIG_DFL or isinstance(before, _Ending):\n    ...",
            "if True:\n    ...",
        ),
        tests=Tests("tests/attacks/test_signals.py", "goes_on_after"),
    ),
]

MUTANTS = [*STORE, *ACQUIRING, *LEASES, *OTHERS, *INTERRUPTED, *COHORT, *SHORTCUTS, *PLACES, *ENDED]
