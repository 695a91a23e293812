"""Deliberate bugs in the algorithms and in the reference store."""

from __future__ import annotations

from tests.mutants.mutant import (
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
ADMISSION = "_core/admission.py"
REMOVAL = "_core/removal.py"
COHORTS = "_core/cohort.py"
IDENTITY = "_runtime/identity.py"

STORE: list[Mutant] = [
    mutant(
        "release without compare",
        "a waiter that gives up frees the holder's lock",
        (
            MEMORY,
            (
                "            entry = next((entry for entry in queue if entry.id == id), None)\n            if entry is None:\n"
                "                return False\n"
            ),
            "            entry = queue[0] if queue else None\n            if entry is None:\n                return False\n",
        ),
        tests=directed("timed_out_does_not"),
    ),
    mutant(
        "renewal is an upsert",
        "a holder that lapsed comes back beside the next one",
        (
            MEMORY,
            "        if entry is None:\n            return Gone()\n        entry.lapses = max(",
            (
                "        if entry is None:\n"
                "            claim = Claim(renewal.resource, renewal.id, renewal.ttl)\n"
                "            entry = self._entry(claim, space.next_number(), now)\n"
                "            space.queues.setdefault(renewal.resource, []).append(entry)\n"
                "        entry.lapses = max("
            ),
        ),
        tests=conforming("nothing_is_re_created"),
    ),
    mutant(
        "renewal may shorten",
        "a late, short renewal takes away what the holder counts on",
        (
            MEMORY,
            "        entry.lapses = max(entry.lapses, now + renewal.ttl)",
            "        entry.lapses = now + renewal.ttl",
        ),
        tests=conforming("nearer"),
    ),
    mutant(
        "dead waiters stay",
        "a killed waiter at the front blocks everybody for ever",
        (
            MEMORY,
            "            queue[:] = [entry for entry in queue if entry.lapses > now]",
            "            queue[:] = [e for e in queue if e.lapses > now or e.admitted_at is None]",
        ),
        (
            MEMORY,
            "                    entry.admitted_at = now\n                    self.ring(entry.id)\n",
            (
                "                    entry.admitted_at = now\n"
                "                    entry.lapses = now + entry.claim.ttl\n"
                "                    self.ring(entry.id)\n"
            ),
        ),
        tests=directed("dead_waiters"),
    ),
    mutant(
        "a token is given twice",
        "two holders write under one token",
        (
            MEMORY,
            "        self.last = max(self.last + 1, self.floor())",
            "        self.last = max(self.last, self.floor())",
        ),
        (MEMORY, "        self.last += block - 1\n", ""),
        tests=directed("wall_clock_set_back"),
    ),
    mutant(
        "tokens are not floored by the clock",
        "after the store lost its memory every new token is stale",
        (MEMORY, "        self.last = max(self.last + 1, self.floor())", "        self.last += 1"),
        tests=directed("tokens_rise"),
    ),
    mutant(
        "a reader passes a writer that waits",
        "the writer starves",
        (
            MEMORY,
            "            ahead = sum(entry.permits for entry in queue[:place])",
            "            ahead = sum(e.permits for e in queue[:place] if e.admitted_at is not None)",
        ),
        tests=directed("reader_does_not_pass"),
    ),
    mutant(
        "repeating a claim enters twice",
        "after a lost reply a waiter waits for itself",
        (
            MEMORY,
            "            place = next((i for i, entry in enumerate(queue) if entry.id == claim.id), len(queue))",
            "            place = len(queue)",
        ),
        tests=conforming("repeating_a_claim_never_enters_twice"),
    ),
    mutant(
        "an eviction is forgotten at once",
        "who was evicted simply queues again",
        (
            MEMORY,
            "                space.evicted[entry.id] = (reason, now + max(REMEMBERED, entry.claim.ttl))",
            "                pass",
        ),
        tests=conforming("evict and not Face and not Lease"),
    ),
    mutant(
        "whoever leaves wakes nobody",
        "every hand-off waits for a lapse",
        (MEMORY, "self.ring = self.waiters.wake", "self.ring = lambda topic: None"),
        tests=directed("reader_does_not_pass or timed_out_does_not"),
    ),
]

ACQUIRING: list[Mutant] = [
    mutant(
        "deadline from the reply's time",
        "a slow network makes two leases valid at once",
        (
            ATTEMPT,
            "                granted = answer if self._usable(answer)",
            (
                "                self.asked = self._runtime.now()\n"
                "                granted = answer if self._usable(answer)"
            ),
        ),
        tests=directed("slow_reply"),
    ),
    mutant(
        "no take-back on cancel",
        "a cancelled acquire holds the lock for a whole ttl",
        (
            ATTEMPT,
            "        except BaseException:\n            await self.undo()\n            raise\n        finally:",
            "        finally:",
        ),
        tests=cancelled("acquire_leaves_nothing"),
    ),
    mutant(
        "no take-back on timeout",
        "who gave up still stands in the queue",
        (
            ATTEMPT,
            (
                "                    await self.take_back(FOR_EVER if self._until is None else self._until)\n"
                "                    return None\n"
            ),
            "                    return None\n",
        ),
        tests=directed("timed_out_does_not"),
    ),
    mutant(
        "a lost reply is answered with a new id",
        "the caller waits for its own forgotten claim",
        (
            ATTEMPT,
            "                tries += not isinstance(failure, HeldUp)\n",
            (
                "                tries += not isinstance(failure, HeldUp)\n"
                "                self.claim = replaced(self.claim, id=self._runtime.fresh_id())\n"
            ),
        ),
        tests=directed("recognised_as_our_own"),
    ),
    mutant(
        "a place is not kept while waiting",
        "who waits longer than a place lives goes back to the end of the queue",
        (ATTEMPT, "            client.keeper.keep(place)\n", "            pass\n"),
        tests=directed("keeps_its_place"),
    ),
    mutant(
        "a grant told with the wake-up is believed however old it is",
        "a waiter that was paused acts on a lease that has lapsed",
        (
            ATTEMPT,
            "        self.asked = place.refreshed\n",
            "        self.asked = self._runtime.now()\n",
        ),
        tests=directed("heard_of_too_late"),
    ),
    mutant(
        "what is owed is forgotten",
        "a store that was away for a moment keeps the claim for a whole ttl",
        (REMOVAL, "    client.keeper.release_later(PendingRelease(", "    (PendingRelease("),
        tests=cancelled("pays_its_debt"),
    ),
    mutant(
        "requests know nothing of the caller's timeout",
        "a call with a timeout hangs as long as the store does",
        (
            "_core/timing.py",
            "    return min(IO_TIMEOUT, max(SHORTEST_ASK, left + GRACE))",
            "    return IO_TIMEOUT",
        ),
        tests=directed("returns_in_time"),
    ),
]

LEASES: list[Mutant] = [
    mutant(
        "the state is not compared with the clock",
        "a paused holder goes on as if nothing had happened",
        (
            LEASE,
            "        if self._state not in FINAL and self._holding.client.runtime.now() >= self._deadline:",
            "        if False:",
        ),
        tests=directed("paused_holder"),
    ),
    mutant(
        "a late renewal is accepted after the deadline",
        "a lease that was reported lost is valid again, beside the next",
        (
            LEASE,
            "            if self._state in FINAL or self._runtime.now() >= self._deadline:",
            "            if self._state is RELEASED:",
        ),
        tests=directed("does_not_bring_a_lease_back"),
    ),
    mutant(
        "the keeper dies of an exception",
        "one bug in a store, and every lock of the client lapses",
        (
            KEEPER,
            "            except Exception as error:  # a keeper that",
            "            except StoreUnavailable as error:  # a keeper that",
        ),
        (
            KEEPER,
            "        except Exception as error:\n            self._trip",
            "        except StoreUnavailable as error:\n            self._trip",
        ),
        tests=directed("keeper_survives"),
    ),
    mutant(
        "the keeper renews for the dead",
        "a worker that died holds its lock as long as the process lives",
        (
            LEASE,
            "        if not self._owner.alive():\n            if renewed",
            "        if False:\n            if renewed",
        ),
        tests=directed("worker_that_died"),
    ),
    mutant(
        "a renewal waits up to the deadline",
        "one lost packet loses the lock",
        (KEEPER, "(first - now) / 2", "first - now"),
        tests=directed("one_lost_answer"),
    ),
    mutant(
        "renewals count from the reply",
        "the holder believes longer than the store remembers",
        (
            KEEPER,
            "                kept._on_reply(asked, answer)",
            "                kept._on_reply(self._runtime.now(), answer)",
        ),
        tests=directed("slow_reply"),
    ),
    mutant(
        "a loss does not cancel the body",
        "an async body works on without its lock",
        (LEASE, "        if not self._bodies or self._interrupted:", "        if True:"),
        tests=directed("cancels_the_body"),
    ),
    mutant(
        "a released lease is still renewed",
        "a renewal reaches the store after the release",
        (
            HOLDING,
            "        if client.keeper.young.pop(lease, self) is not None:",
            "        if False:",
        ),
        (LEASE, "self._state is DOUBTFUL) or self._state in FINAL:", "self._state is DOUBTFUL):"),
        tests=cancelled("release_is_done"),
    ),
]

OTHERS: list[Mutant] = [
    mutant(
        "a multilock keeps the first when the second fails",
        "a timed-out transfer blocks an account for ever",
        (
            "_core/multilock.py",
            "                    self._failed = attempt\n                    await self.undo()\n",
            "                    self._failed = attempt\n",
        ),
        tests=directed("multilock_that_gives_up"),
    ),
    mutant(
        "a multilock keeps the first when it is cancelled",
        "a cancelled transfer blocks an account for ever",
        (
            "_core/multilock.py",
            "            await self._multi.client.runtime.finish(self.undo)\n            raise\n",
            "            raise\n",
        ),
        tests=cancelled("several"),
    ),
    mutant(
        "an update of unknown fate is made again",
        "an order is counted twice",
        ("_core/register.py", "            if not (sure or again):", "            if False:"),
        tests=directed("fate_nobody_knows"),
    ),
    mutant(
        "an interrupted waiter swallows its notification",
        "the next waiter sleeps beside a full queue",
        (
            "_core/condition.py",
            "            if self._owed:\n                await self._condition.wake(1)\n",
            "            if self._owed:\n",
        ),
        tests=cancelled("notification_that_meets"),
    ),
    mutant(
        "an interrupted arrival still counts",
        "a barrier opens for too few",
        (
            "_core/barrier.py",
            "            await self._runtime.finish(lambda: self._withdraw(0.0 if hurry else FOR_EVER))\n",
            "",
        ),
        tests=cancelled("arrival"),
    ),
    mutant(
        "re-entry asks the store again",
        "a thread waits for itself for ever",
        (
            "_core/reentry.py",
            "        if entry is not None and (entry.over or entry.lease._state is State.RELEASED):",
            "        if entry is not None:",
        ),
        tests=cancelled("entered"),
    ),
]

INTERRUPTED: list[Mutant] = [
    mutant(
        "nobody watches a statement",
        "a body that was cut short is renewed for ever",
        ("_runtime/statements.py", "Watch(method[0], _over.append)", "Watch(method[0])"),
        tests=reentered("cut_short or traceback"),
    ),
    mutant(
        "the exit object stands in a frame",
        "a traceback that is kept keeps a lock",
        (
            "_runtime/statements.py",
            "        watch.statement = _here.statement = statement\n",
            "        watch.statement = _here.statement = statement\n        statement.manager = (statement.manager, method[0])\n",
        ),
        (
            "_runtime/statements.py",
            "(statement.manager is manager or statement.manager is type(manager))",
            "(statement.manager[0] is manager or statement.manager[0] is type(manager))",
        ),
        tests=reentered("cut_short or traceback"),
    ),
    mutant(
        "the exit object stands in a variable",
        "a frame that a profiler keeps keeps a lock",
        ("_runtime/statements.py", "return method.pop()", "return method[0]"),
        tests=watched("profiler"),
    ),
    mutant(
        "a look at all frames keeps them",
        "the variables of whoever called the sweep live until the garbage collector runs",
        ("_runtime/statements.py", "frames, frame = [], None", "frame = sys._getframe()"),
        tests=watched("frames_of_all"),
    ),
    mutant(
        "an ExitStack waits for the garbage collector",
        "a lock whose exit was interrupted there is renewed for ever",
        ("_runtime/statements.py", "            if statement.interrupted():", "            if False:"),
        tests=reentered("waits_for_no_collector and memory"),
    ),
    mutant(
        "a release does not look whether its thread is inside",
        "a garbage collector that ends a generator hangs its thread for ever",
        (
            LEASE,
            "        if client.guard._is_owned() or (self._turn is None and client.store.inside()):",
            "        if False:",
        ),
        tests=reentered("inside_a_guard"),
    ),
    mutant(
        "each pending release waits for the part that hangs",
        "forty waiters that gave up cost a lease on a healthy node",
        (
            KEEPER,
            "            if part not in silent:\n                patience",
            "            if True:\n                patience",
        ),
        (KEEPER, "            if left <= 0:\n                return\n", ""),
        (KEEPER, "max(0.01, min(PENDING_TRY, left))", "PENDING_TRY"),
        tests=hasty("pending_releases"),
    ),
    mutant(
        "the keeper tells listeners itself",
        "a slow log handler costs every lease of its process",
        (CLIENT, "            if self.keeper.here():", "            if False:"),
        tests=hasty("listener"),
    ),
    mutant(
        "a cancelled caller waits for the store",
        "a time limit of 0.2 s takes ten",
        (ATTEMPT, "        soon = self._runtime.now() + timing.HURRY", "        soon = FOR_EVER"),
        tests=hasty("cancelled_task"),
    ),
    mutant(
        "a cancelled close waits for the store",
        "a program that must end in a second needs seven",
        (
            "_core/client.py",
            "                await self.runtime.finish(self._end_soon)\n            raise",
            "                await self.runtime.finish(self._end)\n            raise",
        ),
        tests=hasty("a_close"),
    ),
    mutant(
        "closing does not wait for those who are asking",
        "a claim that nobody has stands for a whole ttl",
        (CLIENT, "        await self._see_attempts_end()\n", ""),
        tests=hasty("closing_beside"),
    ),
]

COHORT: list[Mutant] = [
    mutant(
        "an heir has the token of its lender",
        "a late write of the lender passes for the heir's",
        (LEASE, "lender._token + 1", "lender._token"),
        tests=inherited("rising_tokens"),
    ),
    mutant(
        "tokens that are passed on are not reserved",
        "another client gets the same token",
        (MEMORY, "        self.last += block - 1\n", ""),
        tests=conforming("tokens_of_a_block"),
    ),
    mutant(
        "an heir counts on a whole ttl",
        "it believes longer than the store remembers",
        (
            LEASE,
            "        self._deadline, self._last_try, self._short = lender._deadline, lender._last_try, lender._short\n",
            "",
        ),
        tests=inherited("inherits_what_is_left"),
    ),
    mutant(
        "a cancelled heir keeps the claim",
        "everybody waits for a whole ttl",
        (
            ATTEMPT,
            "                await self._decline(turn)\n        finally",
            "                pass\n        finally",
        ),
        tests=inherited("cancelled_when_its_turn_comes"),
    ),
    mutant(
        "a lost lease leaves those behind it alone",
        "they sleep out their turn, and all who come later wait behind a head that is gone",
        (
            HOLDING,
            "        self.client.cohorts.dissolve(lease)\n        if self.client.sessions",
            "        if self.client.sessions",
        ),
        tests=inherited("was_lost"),
    ),
    mutant(
        "whoever stands behind the head inherits",
        "one that began after another's grant has the lower token",
        (COHORTS, "line[0].began >= before or ", ""),
        tests=inherited("is_no_heir_before"),
    ),
    mutant(
        "a claim that was gone when it was released has kept others out",
        "one that began after another's grant has the lower token",
        (
            LEASE,
            "            if stood:\n                client.cohorts.stood(claim, sent)\n",
            "            client.cohorts.stood(claim, sent)\n",
        ),
        tests=inherited("while_our_own_claim_stood"),
    ),
    mutant(
        "those who came while a claim of ours stood ask the store again",
        "a cohort of tasks that hold for a moment asks the store for every second grant",
        (COHORTS, "            head.ours_until = until\n", "            pass\n"),
        tests=inherited("while_our_own_claim_stood"),
    ),
    mutant(
        "a waiter inherits whomever the store names",
        "one that began after another's grant holds beside it, with the lower token",
        (COHORTS, "holder.id == claim.id and holder.token == (", "True or (holder.token == "),
        tests=inherited("does_not_inherit_what_is_lost"),
    ),
    mutant(
        "a waiter inherits though others are ahead",
        "the waiters of other clients are overtaken",
        (COHORTS, "        if busy.ahead != 1 or holder is None", "        if holder is None"),
        tests=inherited("not_overtaken"),
    ),
    mutant(
        "a head takes all along who stand behind it",
        "one that the store's answer is older than has a token that is too low",
        (COHORTS, "line[0].began >= head.asked or ", ""),
        tests=inherited("lined_up_after"),
    ),
    mutant(
        "the place of an heir stays in the store",
        "the lock goes to a waiter that is long gone",
        (
            LEASE,
            "                await remove(client, place, 0.0, until)  # first",
            "                pass  # first",
        ),
        tests=inherited("leaves_no_place"),
    ),
    mutant(
        "the place behind a lost lease is forgotten",
        "everybody waits for a place that nobody stands in",
        (COHORTS, "            release_later(client, left, 0.0, pause=0.0)\n", ""),
        tests=inherited("behind_a_lease_that_is_lost"),
    ),
    mutant(
        "an heir keeps its place",
        "nobody else may stand there, and each waiter of the client makes one more",
        (COHORTS, "                place.waiter = None\n", "                pass\n"),
        tests=inherited("stands_in_the_place"),
    ),
    mutant(
        "a new head asks at once though heirs are left",
        "those who line up behind it have come too late for its question, and each must be asked for again",
        (COHORTS, "            if turn is None or not turn.heirs or ", "            if True or "),
        tests=inherited("when_the_last_heir"),
    ),
    mutant(
        "nobody calls the head that stands by",
        "a free lock lies idle until it has waited long enough",
        (LEASE, "        client.cohorts.call_head(turn)\n", ""),
        tests=inherited("when_the_last_heir"),
    ),
    mutant(
        "a turn that ends early forgets the head that stands by",
        "a free lock lies idle until it has waited long enough",
        (COHORTS, "                first = head  # perhaps it stands by\n", "                pass\n"),
        tests=inherited("turn_ends_before"),
    ),
    mutant(
        "who stands in another's place is evicted with it",
        "a waiter fails for what an operator did to another",
        (
            ATTEMPT,
            "        if not self.heir_who:\n            raise Evicted",
            "        if True:\n            raise Evicted",
        ),
        tests=inherited("operator_who_evicts"),
    ),
]

SHORTCUTS: list[Mutant] = [
    mutant(
        "a line is described once for all",
        "an operator looks for the wrong thread",
        (
            IDENTITY,
            "    if caller is owner and there is process:",
            "    if caller is not None and there is process:",
        ),
        tests=Tests("tests/faces/test_call_sites.py", "each_caller"),
    ),
    mutant(
        "a forked child is described as its parent",
        "an operator stops the wrong process",
        (IDENTITY, "    if caller is owner and there is process:", "    if caller is owner:"),
        tests=Tests("tests/faces/test_call_sites.py", "forked_child"),
    ),
    mutant(
        "the first lease of an object is released",
        "a thread ends the lease of another",
        (HOLDING, "        if len(leases) == 1 and not self.older:", "        if leases and not self.older:"),
        tests=Tests("tests/faces/test_owners.py", "older_one"),
    ),
    mutant(
        "the only lease of a lock stands for none that were lost before it",
        "a release that should hear of a loss gives back what another holds",
        (HOLDING, "        if len(leases) == 1 and not self.older:", "        if len(leases) == 1:"),
        tests=Tests("tests/attacks/test_after_a_loss.py", "lost_in_a_row"),
    ),
    mutant(
        "whoever awaits a release is its caller",
        "a task that holds nothing gives back what another task holds",
        (
            HOLDING,
            (
                "        return self._release_of(self.client.runtime.owner())\n\n"
                "    async def _release_of(self, owner: Owner) -> None:\n"
            ),
            (
                "        return self._release_of()\n\n"
                "    async def _release_of(self) -> None:\n"
                "        owner = self.client.runtime.owner()\n"
            ),
        ),
        tests=Tests("tests/faces/test_owners.py", "a_release_that_a_task"),
    ),
    mutant(
        "a grant that comes with the wake-up is not looked at",
        "a waiter that was paused acts on a lease that has lapsed",
        (ATTEMPT, "        return granted if self._usable(granted) else None\n", "        return granted\n"),
        tests=directed("heard_of_too_late"),
    ),
    mutant(
        "who stands in another's place is not named",
        "an operator sees a holder that is long gone",
        (HOLDING, "            due = lease._sign_soon(attempt.heir_who)\n", "            pass\n"),
        tests=inherited("place_of_another_is_shown"),
    ),
    mutant(
        "an heir keeps the claim that it waited with",
        "it holds what was given to another, and nobody releases what it has",
        (
            LEASE,
            "        self._claim, self._token = lender._claim, lender._token + 1\n",
            "        self._token = lender._token + 1\n",
        ),
        tests=inherited("rising_tokens"),
    ),
    mutant(
        "an heir whose wait has ended believes that it was woken",
        "two hold at once",
        (ATTEMPT, "turn is not None and turn.holder is self:", "turn is not None:"),
        tests=inherited("wait_ends_before"),
    ),
    mutant(
        "only the first of several brief waits is ended",
        "tasks stand in line behind a head that is stuck, and never ask the store themselves",
        (
            "_runtime/tasks.py",
            "                self._tick_at(end)\n                break\n",
            "                break\n",
        ),
        tests=Tests("tests/unit/test_task_signal.py", "each_brief_wait"),
    ),
    mutant(
        "the timer of brief waits is that of the loop before",
        "the first wait on a new event loop never ends",
        (
            "_runtime/tasks.py",
            "        if brief is None or brief.loop is not loop:",
            "        if brief is None:",
        ),
        tests=Tests("tests/unit/test_task_signal.py", "another_loop"),
    ),
    mutant(
        "an heir is not woken",
        "it sleeps out its turn, with the lock in its hand",
        (LEASE, "            called.set()  # first: the heir", "            pass  # first: the heir"),
        tests=inherited("rising_tokens"),
    ),
    mutant(
        "a lease with heirs is released from inside the store",
        "a garbage collector that runs there waits for its own thread",
        (
            LEASE,
            "            if before is RELEASED or not client.store.inside():\n",
            "            if True:\n",
        ),
        tests=inherited("inside_the_store"),
    ),
    mutant(
        "a waiter that may inherit is forgotten at the end",
        "everybody waits for the place of a process that is gone",
        (
            COHORTS,
            "            places = [turn.place for turn in turns if turn.place is not None]\n",
            "            places = [turn.place for turn in turns if turn.place is not None and turn.free_place()]\n",
        ),
        tests=inherited("removed_at_the_end"),
    ),
    mutant(
        "who asked in a task of its own owns the lease",
        "the lease is not renewed, as its task is over",
        ("aio.py", "(attempt.runner is owner and type(owner) is TaskOwner)", "type(owner) is TaskOwner"),
        tests=Tests(
            "tests/faces/test_owners.py", "owns_what_a_task or is_renewed_for_its_caller or granted_after"
        ),
    ),
]

PLACES: list[Mutant] = [
    mutant(
        "renewals of places look at nothing",
        "a waiter that does not ask by itself waits behind the dead for ever",
        (ADMISSION, "    return late or (place <= let_in and", "    return (place > len(permits)) and ("),
        tests=crowded("dead_ahead or when_it_is_let_in"),
    ),
    mutant(
        "the first waiter looks only at the claim just ahead",
        "a semaphore with a dead holder stays full while another holder lives",
        (
            ADMISSION,
            "range(place) if place <= let_in else range(place - 1, place)",
            "range(place - 1, place)",
        ),
        tests=crowded("every_holder"),
    ),
    mutant(
        "a lapse ahead is noticed when it has happened",
        "a dead waiter delays the next by a ttl and a third",
        (ADMISSION, "<= min(ttls[ahead], place_ttl) / 2 for", "<= 0 for"),
        tests=crowded("dead_ahead"),
    ),
    mutant(
        "a waiter leaves a lapse that is near to the renewals",
        "it is let in a third of a ttl late",
        (
            ATTEMPT,
            "return busy.retry_after > self.claim.place_ttl * timing.WATCHED_BY_RENEWALS",
            "return True",
        ),
        tests=crowded("dead_ahead"),
    ),
    mutant(
        "every waiter asks whenever the claim ahead might have lapsed",
        "a thousand waiters keep the server busy with counting",
        (ATTEMPT, "granted is not None or not self._watched(busy) or", "True or"),
        tests=crowded("asks_no_second_time"),
    ),
]

MUTANTS = [*STORE, *ACQUIRING, *LEASES, *OTHERS, *INTERRUPTED, *COHORT, *SHORTCUTS, *PLACES]
