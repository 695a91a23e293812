"""What is true of one run of a scenario: who held, who believed, who worked, and where that was wrong.

The bands of the picture, the sentences of the verdict and the exit code are made from a `Run` alone, so they
cannot differ. Pure: a history that was kept is judged again by newer code.

- A client is *at work* from its grant to the end of its body, less the time in which its process was paused.
- A write is *late* if its writer had no lease in any store, or if a newer holder had one.
- **Harm** (red): the resource accepted a late write, or one that undid another, while two bodies were at work
  or one worked without a lease. A write can be late without an overlap: its writer woke up after the next
  holder had finished.
- **Wrong without harm** (yellow): a body is inside without a lease, and nothing late was accepted.
- **Mistaken** (orange): a holder believes that it holds, and no store says so.
- **Stuck**: a client asked, and never got in although nobody was alive to hold the lock.
- **Abandoned**: a store names a holder that has died or gone, and will not be back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

from interlock.lab.spans import Span, Spans, covers, intersect, subtract, total, union
from interlock.lab.texts import Text
from interlock.testing.history import Record

SHORT_WAIT = 0.02  # seconds; a wait that is shorter is not drawn
SHORT_BAND = 0.003  # seconds; a release and its record are that far apart


@dataclass(frozen=True, slots=True)
class StoreLease:
    """The time in which one store says that somebody holds."""

    store: str
    holder: str
    token: int
    span: Span


@dataclass(frozen=True, slots=True)
class Fault:
    """What was done to a process or to the network, and for how long."""

    process: str
    what: str
    span: Span

    @property
    def stops_its_process(self) -> bool:
        return self.what in ("paused", "killed")


class ClientRecords:
    """What one client did: when it waited, believed that it held, and worked.

    A belief ends when the holder lets go, and before that at the last deadline that it knew.
    """

    CALLS = ("acquire", "grant", "renew", "body", "end", "fault")

    def __init__(self, records: Iterable[Record], run_end: float) -> None:
        self.belief, self.body, self.waits = list[Span](), list[Span](), list[Span]()
        self.refused: list[Record] = []  # calls that ended without a lease
        self.told: list[float] = []  # when leases ended whose loss it was told of
        self.asked: float | None = None  # since when it waits
        self._believes: float | None = None
        self._works: float | None = None
        self._deadline = 0.0
        for record in records:
            getattr(self, f"_on_{record.call}")(record)
        self._close(run_end)

    def _close(self, run_end: float) -> None:
        """What has not ended lasts until the end of the run."""
        if self._believes is not None:
            self._end_belief(run_end)
        if self._works is not None:
            self.body.append((self._works, run_end))
        if self.asked is not None:
            self.waits.append((self.asked, run_end))

    def _on_acquire(self, record: Record) -> None:
        if record.kind == "invoke":
            self.asked = record.time
        elif self.asked is not None:
            self._end_wait(record.time)
            self.refused.append(record)

    def _on_grant(self, record: Record) -> None:
        self._end_wait(record.time)
        if self._believes is not None:  # it has released in between; its program says only how it ended
            self._end_belief(self.body[-1][1] if self.body and self._works is None else record.time)
        self._believes = self._works = record.time
        self._deadline = record.deadline

    def _on_renew(self, record: Record) -> None:
        if record.kind == "ok":
            self._deadline = record.deadline

    def _on_body(self, record: Record) -> None:
        if self._works is not None:
            self.body.append((self._works, record.time))
            self._works = None

    def _on_end(self, record: Record) -> None:
        if self._believes is None:
            return
        # One that releases believes no more once its work is done.
        done = record.kind == "ok" and bool(self.body)
        self._end_belief(self.body[-1][1] if done else record.time)
        if record.kind == "info":
            self.told.append(self.belief[-1][1])

    def _on_fault(self, record: Record) -> None:
        if record.error == "killed":
            self._end_wait(record.time)
            self._on_body(record)
            if self._believes is not None:
                self._end_belief(record.time)

    def _end_wait(self, time: float) -> None:
        if self.asked is not None:
            self.waits.append((self.asked, time))
            self.asked = None

    def _end_belief(self, until: float) -> None:
        assert self._believes is not None
        known = min(until, self._deadline) if self._deadline else until
        self.belief.append((self._believes, max(self._believes, known)))
        self._believes = None


class Run:
    """One run of a scenario, with times in seconds since its first record."""

    def __init__(self, name: str, records: Iterable[Record], ttl: float) -> None:
        self.name, self.ttl = name, ttl
        self.records: Sequence[Record] = _from_zero(sorted(records, key=lambda record: record.time))
        self.end: float = self.records[-1].time if self.records else 0.0
        self.stores = _processes(self.records, "hold")
        self.clients = sorted({*_processes(self.records, "acquire"), *_processes(self.records, "grant")})
        self.leases: list[StoreLease] = [lease for store in self.stores for lease in self._leases_of(store)]
        self.belief: dict[str, Spans] = {}
        self.body: dict[str, Spans] = {}
        self.waits: dict[str, Spans] = {}
        self.refused: list[Record] = []  # calls that ended without a lease
        self.told: list[tuple[str, float]] = []  # who learned that its lease was lost, and when it ended
        self.still_waiting: dict[str, float] = {}  # who never got an answer, since when
        for client in self.clients:
            self._read_client(client)
        self.faults: list[Fault] = self._faults()

    # -- reading the records ---------------------------------------------------------------------

    def _of(self, process: str, *calls: str) -> list[Record]:
        return [record for record in self.records if record.process == process and record.call in calls]

    def _leases_of(self, store: str) -> list[StoreLease]:
        found: list[StoreLease] = []
        holder, token, start, end = "", 0, 0.0, 0.0
        for record in self._of(store, "hold"):
            if holder and (record.kind != "ok" or record.holder != holder):
                found.append(StoreLease(store, holder, token, (start, max(start, min(record.time, end)))))
                holder = ""
            if record.kind == "ok":
                if not holder:
                    holder, token, start = record.holder, record.token, record.time
                end = min(self.end, record.deadline) if record.deadline else self.end
        if holder:
            found.append(StoreLease(store, holder, token, (start, max(start, min(end, self.end)))))
        return found

    def _read_client(self, client: str) -> None:
        """Take over what the records of one client say."""
        read = ClientRecords(self._of(client, *ClientRecords.CALLS), self.end)
        self.belief[client], self.body[client] = read.belief, read.body
        self.waits[client] = [wait for wait in read.waits if wait[1] - wait[0] > SHORT_WAIT]
        self.refused += read.refused
        self.told += [(client, time) for time in read.told]
        if read.asked is not None:
            self.still_waiting[client] = read.asked

    def _faults(self) -> list[Fault]:
        begun: dict[tuple[str, str], Record] = {}
        found: list[Fault] = []
        for record in self.records:
            if record.call != "fault":
                continue
            key = record.process, record.attempt
            if record.kind == "invoke":
                begun[key] = record
            elif key in begun:
                start = begun.pop(key)
                found.append(Fault(record.process, start.error, (start.time, record.time)))
        found += [Fault(one.process, one.error, (one.time, self.end)) for one in begun.values()]
        return sorted(found, key=lambda fault: fault.span)

    # -- what is true ----------------------------------------------------------------------------

    def lease(self, client: str) -> Spans:
        """When any store said that this client holds."""
        return union([lease.span for lease in self.leases if lease.holder == client])

    def awake(self, client: str) -> Spans:
        """When its body was at work: a body that is paused does no work."""
        return subtract(
            self.body[client],
            [fault.span for fault in self.faults if fault.process == client and fault.stops_its_process],
        )

    def mistaken(self, client: str) -> Spans:
        """When it believed that it held, and no store said so."""
        return subtract(self.belief[client], self.lease(client)) if self.stores else []

    def writes(self, kind: str = "ok") -> list[Record]:
        """Writes that the resource accepted (ok) or refused (fail)."""
        return [record for record in self.records if record.call == "accept" and record.kind == kind]

    def late_writes(self, kind: str = "ok") -> list[Record]:
        """Writes of a client that had no lease, or beside a newer holder."""
        return [write for write in self._late if write.kind == kind]

    @cached_property
    def _late(self) -> list[Record]:
        if not self.stores:
            return []
        return [record for record in self.records if record.call == "accept" and self._is_late(record)]

    def _is_late(self, write: Record) -> bool:
        at = write.time
        if write.attempt:
            return False  # the resource has checked it in another way, and would have refused
        near = [lease for lease in self._leases_about(at) if covers([lease.span], at)]
        if write.holder not in [lease.holder for lease in near]:
            return True
        starts = self._starts_by_holder[write.holder]
        entered = starts[bisect_right(starts, at) - 1]
        return any(lease.holder != write.holder and lease.span[0] > entered for lease in near)

    @cached_property
    def _starts_by_holder(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for lease in sorted(self.leases, key=lambda lease: lease.span):
            found.setdefault(lease.holder, []).append(lease.span[0])
        return found

    def _leases_about(self, time: float) -> list[StoreLease]:
        """The lease of each store that began last before this moment: no other one of it can cover it."""
        found: list[StoreLease] = []
        for starts, leases in self._leases_by_start:
            place = bisect_right(starts, time)
            found += leases[max(0, place - 2) : place]  # two, because one may end where the next begins
        return found

    @cached_property
    def _leases_by_start(self) -> list[tuple[list[float], list[StoreLease]]]:
        by_store = [[lease for lease in self.leases if lease.store == store] for store in self.stores]
        return [([lease.span[0] for lease in leases], leases) for leases in by_store]

    @cached_property
    def two_at_work(self) -> Spans:
        """When two bodies worked at once."""
        awake = {client: self.awake(client) for client in self.clients}
        return union(*(intersect(awake[one], awake[other]) for one, other in combinations(self.clients, 2)))

    @cached_property
    def two_believe(self) -> Spans:
        """When two believed at once that they held. A body may end a little later: at its next look."""
        pairs = combinations(self.clients, 2)
        return union(*(intersect(self.belief[one], self.belief[other]) for one, other in pairs))

    @cached_property
    def harm(self) -> Spans:
        """Two bodies at work, or one without a lease, and the resource accepted what it should not have."""
        late = [write.time for write in (*self.late_writes("ok"), *self.lost_writes)]
        without_lease = union(*(subtract(self.awake(client), self.lease(client)) for client in self.clients))
        if not self.stores:
            without_lease = []  # nobody has one
        return union(
            span for span in self.two_at_work + without_lease if any(covers([span], time) for time in late)
        )

    @cached_property
    def wrong_without_harm(self) -> Spans:
        """A body is inside without a lease, and nothing comes of it."""
        if not self.stores:
            return []
        wrong = union(*(subtract(self.body[client], self.lease(client)) for client in self.clients))
        return [(start, end) for start, end in subtract(wrong, self.harm) if end - start > SHORT_BAND]

    @cached_property
    def lost_writes(self) -> list[Record]:
        """Accepted writes of a counter that undid another: both had read the same number."""
        seen: set[tuple[str, int]] = set()
        found: list[Record] = []
        for write in self.writes("ok"):
            if write.value and (write.resource, write.value) in seen:
                found.append(write)
            seen.add((write.resource, write.value))
        return found

    @property
    def lost_updates(self) -> int:
        """How many accepted writes of a counter were undone by another that had read the same number."""
        return len(self.lost_writes)

    def gone(self, client: str) -> float | None:
        """When it died or ended with a lease that nobody gave back; None while it may still come back."""
        dead = [fault.span[0] for fault in self.faults if fault.process == client and fault.what == "killed"]
        if dead:
            return dead[-1]
        if self.belief[client] and self.belief[client][-1][1] < self.end:
            return self.belief[client][-1][1]
        return None

    def abandoned(self, client: str) -> Spans:
        """When a store named it as the holder although it was gone."""
        gone = self.gone(client)
        if gone is None:
            return []
        return [(max(start, gone), end) for start, end in self.lease(client) if end > gone + SHORT_BAND]

    @cached_property
    def nobody_in(self) -> Spans:
        """When somebody waited in vain although nobody was inside."""
        waits = union(*(self._waits_in_vain(client) for client in self.clients if self.stuck(client)))
        empty = subtract(waits, union(*self.body.values()))
        return [(start, end) for start, end in empty if end - start > SHORT_WAIT]

    def _waits_in_vain(self, client: str) -> Spans:
        since = self.still_waiting.get(client)
        return [*self.waits.get(client, []), *([(since, self.end)] if since is not None else [])]

    def knew_before(self) -> list[tuple[str, Span]]:
        """Holders that were told: from the end by their own clock to the end in the first store."""
        found: list[tuple[str, Span]] = []
        for client, known in self.told:
            own = [lease.span[1] for lease in self.leases if lease.holder == client]
            ends = [end for end in own if end >= known]
            found += [(client, (known, min(ends)))] if ends else []
        return found

    def measures(self, process: str | None = None) -> dict[str, float]:
        """The numbers that the run, or one process of it, measured, by their name; the last of each."""
        return {
            record.attempt: record.amount
            for record in self.records
            if record.call == "measure" and process in (None, record.process)
        }

    def tokens(self) -> list[int]:
        """The tokens of all grants, in the order of time."""
        return [record.token for record in self.records if record.call == "grant" and record.token]

    def granted(self, client: str) -> bool:
        return any(record.call == "grant" and record.process == client for record in self.records)

    def stuck(self, client: str, ttls: float = 2.0) -> bool:
        """Whether it asked for so many ttls, was awake, and never got in."""
        waits = self._waits_in_vain(client)
        return not self.granted(client) and any(end - start >= ttls * self.ttl for start, end in waits)

    # -- sentences -------------------------------------------------------------------------------

    def facts(self) -> dict[str, str]:
        """The numbers that captions may name."""
        margins = self.knew_before()
        waits = [end - start for spans in self.waits.values() for start, end in spans]
        return {
            "overlap": seconds(total(intersect(self.harm, self.two_at_work))),
            "wrong": seconds(sum(total(self.mistaken(client)) for client in self.clients)),
            "late": str(len(self.late_writes("ok"))),
            "refused": str(len(self.writes("fail"))),
            "lost": str(self.lost_updates),
            "margin": seconds(total([margins[0][1]])) if margins else "",
            "waited": seconds(max(waits, default=0.0)),
            "ttl": seconds(self.ttl),
            **{name: plain_number(value) for name, value in self.measures().items()},
        }

    def verdict(self) -> Text:
        """One sentence about the whole run."""
        late, refused = len(self.late_writes("ok")), self.late_writes("fail")
        done = _count(late, "late write", "迟到的写入", "accepted", "接受了")
        lost = _count(self.lost_updates, "update", "更新", "lost", "丢失了")
        if overlap := total(intersect(self.harm, self.two_at_work)):
            at_once = Text(
                f"Two at work at once for {seconds(overlap)}; ", f"两个任务同时工作 {seconds(overlap)}；"
            )
            what = done if late else lost
            return Text(at_once.en + what.en, at_once.zh + what.zh)
        if late or self.lost_updates:
            return done if late else lost
        if self.nobody_in:
            return self._nobody_got_in()
        if not self.told:
            return self._let_in_after_a_death() or Text("Never two at work.", "始终只有一个在工作。")
        end = (
            Text("its late write was refused", "它迟到的写入被拒绝")
            if refused
            else Text("it was told before its next write", "它在下一次写入之前得知")
        )
        # For a moment after a pause nobody can prevent it; so it is said.
        if awake := total(self.two_at_work):
            return Text(
                f"No harm: a late body was awake for {seconds(awake)}; {end.en}.",
                f"无害：迟到的任务醒着 {seconds(awake)}；{end.zh}。",
            )
        return Text(
            f"Never two at work: the holder lost its lease, and {end.en}.",
            f"始终只有一个在工作：持有者失去租约，{end.zh}。",
        )

    def _nobody_got_in(self) -> Text:
        waited = seconds(total(self.nobody_in))
        if intersect(self.nobody_in, union(*(self.abandoned(client) for client in self.clients))):
            return Text(
                f"Nobody got in for {waited}: the lock belonged to a client that was gone.",
                f"{waited} 内没有人能进入：锁属于一个已经不在的客户端。",
            )
        if intersect(self.nobody_in, union(lease.span for lease in self.leases)):
            return Text(
                f"Nobody got in for {waited}, although nobody was at work.",
                f"{waited} 内没有人能进入，尽管没有人在工作。",
            )
        return Text(f"Nobody got in for {waited}.", f"{waited} 内没有人能进入。")

    def _let_in_after_a_death(self) -> Text | None:
        """How long after the death of a holder the next one was let in; None if no holder died."""
        for fault in self.faults:
            died = fault.span[0]
            if fault.what != "killed" or not covers(self.belief.get(fault.process, []), died):
                continue
            others = (one for one in self.records if one.call == "grant" and one.process != fault.process)
            if entered := next((one.time for one in others if one.time > died), None):
                after = seconds(entered - died)
                return Text(
                    f"Never two at work; the next one got in {after} after the death of {fault.process}.",
                    f"始终只有一个在工作；{fault.process} 死去 {after} 之后，下一个进入。",
                )
        return None


def seconds(value: float) -> str:
    """A duration as people read it."""
    if value < 0.001:
        return "< 1 ms"
    if value < 0.0995:
        return f"{value * 1000:.0f} ms"
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def plain_number(value: float) -> str:
    """A number as people read it: three digits, and all that stand before the point."""
    return f"{value:,.0f}" if value == int(value) or value >= 1000 else f"{value:,.3g}"


def _count(number: int, noun_en: str, noun_zh: str, verb_en: str, verb_zh: str) -> Text:
    """A sentence that counts."""
    many = noun_en if number == 1 else f"{noun_en}s"
    return Text(f"{number} {many} {verb_en}.", f"{verb_zh} {number} 次{noun_zh}。")


def runs(records: Iterable[Record], ttl: float) -> dict[str, Run]:
    """The runs of one scenario's history, by name, in the order in which they began."""
    parts: dict[str, list[Record]] = {}
    for record in records:
        parts.setdefault(record.run, []).append(record)
    return {name: Run(name, part, ttl) for name, part in parts.items()}


def _from_zero(records: list[Record]) -> list[Record]:
    """The same records, with times that count from the first."""
    if not records:
        return []
    zero = records[0].time
    return [
        replace(record, time=record.time - zero, deadline=record.deadline - zero if record.deadline else 0.0)
        for record in records
    ]


def _processes(records: Iterable[Record], call: str) -> list[str]:
    return list(dict.fromkeys(record.process for record in records if record.call == call))
