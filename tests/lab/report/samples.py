"""Results to draw: two histories that were kept, and small ones that are made up, one for each kind of picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from interlock.lab.judge import Run, runs
from interlock.lab.report import read_history
from interlock.lab.scenario import Caption, Finding, Link, Listing, Measure, Outcome, Result, Scenario
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me
from interlock.testing.history import Kind, Record

HISTORIES = Path(__file__).parent / "histories"
KINDS = (
    "gc-pause",
    "split-brain",
    "crash-before-del",
    "no-lock",
    "poll-or-push",
    "flash-sale",
    "soak",
    "strange",
)
"""The samples that were played; `missing` was not."""

NAIVE_CODE = """\
def naive(me: Me) -> None:
    server = me.redis()
    while not server.set("report", me.name, nx=True, px=1000):
        time.sleep(0.01)
    for row in me.rows():
        compute(row)  # it may be frozen here
        me.write(row)  # nobody asks whose lock it is
    server.eval(DELETE_IF_MINE, 1, "report", me.name)
"""
OUR_CODE = """\
def ours(me: Me) -> None:
    client = me.interlock()
    with client.lock("report") as lease:
        for row in me.rows():
            compute(row)
            lease.check()  # raises LeaseLost
            me.write(row, lease.token)
"""


def nothing(me: Me) -> None:
    """The program of a sample: nothing ran."""


class Sample(Scenario):
    """A scenario whose history is given."""

    story = Text("What happens, and why it is believed not to.", "发生什么，以及为什么人们以为不会发生。")
    lesson = Text("What to take home.", "值得记住的一点。")
    needs = "redis"
    programs: ClassVar[Mapping[str, Callable[[Me], None]]] = {"naive": nothing, "ours": nothing}

    def __init__(self, number: int, name: str, title: Text, **data: Any) -> None:
        for field, value in {"number": number, "name": name, "title": title, **data}.items():
            setattr(self, field, value)

    def play(self, stage: Stage) -> None:
        raise NotImplementedError

    def naive_failed(self, run: Run) -> bool | None:
        return bool(run.late_writes() or run.lost_updates or run.nobody_in or run.measures())

    def ours_survived(self, run: Run) -> bool | None:
        return not self.naive_failed(run) or bool(run.measures())

    def listing(self, run: str) -> Listing:
        code = NAIVE_CODE if run == "naive" else OUR_CODE
        return Listing(20, tuple(code.splitlines()))


def record(time: float, process: str, call: str, kind: Kind = "ok", **rest: Any) -> Record:
    return Record(time, process, call, kind, **rest)


def judged(scenario: Scenario, records: Iterable[Record], ttl: float = 1.0) -> Result:
    found = runs(records, ttl)
    findings = {name: scenario.judge(run) for name, run in found.items()}
    return Result(scenario, found, findings, seed=7, took=4.2, versions=("Redis 7.0.15",))


def in_run(name: str, records: Iterable[Record]) -> list[Record]:
    return [replace(one, run=name) for one in records]


def caption(run: str, en: str, zh: str, **at: str) -> Caption:
    return Caption(run, at, Text(en, zh))


def kept(name: str, scenario: Scenario) -> Result:
    (one,) = read_history(HISTORIES / f"{name}.jsonl")
    return one.judged(scenario)


def gc_pause() -> Result:
    """Recorded on a Redis server."""
    told = "interlock renews the lease while A is alive.", "A 活着时，interlock 为它续约。"
    captions = (
        caption("naive", "A is frozen in the middle of its work.", "A 工作到一半被冻结。",
                process="A", call="fault", kind="invoke"),
        caption("naive", "The lease runs out in the store and B enters. Nobody tells A: it goes on believing for {wrong}.",
                "存储中的租约到期，B 进入。没有人告诉 A：它继续相信了 {wrong}。", process="B", call="grant"),
        caption("naive", "A wakes up and goes on: two are at work for {overlap}, and the resource takes {late} late writes.",
                "A 醒来继续工作：两者同时工作 {overlap}，资源接受了 {late} 次迟到的写入。", process="A", call="fault", kind="ok"),
        caption("ours", "Stopped before its check, A meets LeaseLost at the first check after the pause. It writes nothing.",
                "若停在检查之前，A 醒来后的第一次检查就得到 LeaseLost，什么也没写。", process="A", call="body", kind="fail"),
        caption("guard", *told, process="A", call="renew"),
        caption("guard", "A's own deadline passes {margin} before the store lets go. Then B enters, with a higher token.",
                "A 自己的期限比存储早 {margin} 到。然后 B 以更大的令牌进入。", process="B", call="grant"),
        caption("guard", "A wakes past its check and writes. The resource has seen a higher token and refuses; A stops.",
                "A 醒来时已过检查点，直接写入。资源见过更大的令牌，拒绝；A 停止。", process="resource", call="accept", kind="fail"),
    )  # fmt: skip
    links = (Link("Martin Kleppmann: How to do distributed locking",
                  "https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html"),)  # fmt: skip
    story = Text(
        "A takes the lock and is frozen in the middle of its work, as by a long garbage collection. Its lease runs "
        "out, B enters, and A wakes up and writes as if nothing had happened.",
        "A 拿到锁，工作到一半被冻结，就像一次很长的垃圾回收。租约到期，B 进入；A 醒来后若无其事地继续写。",
    )
    lesson = Text("No lock can stop a write that its holder sends too late; only the resource can, by the token.",
                  "没有任何锁能拦住持有者迟到的写入；只有资源自己能凭令牌拒绝它。")  # fmt: skip
    title = Text("A pause longer than the lease", "停顿比租约更长")
    programs = {"naive": nothing, "ours": nothing, "guard": nothing}
    return kept("gc-pause", Sample(28, "gc-pause", title, story=story, lesson=lesson, captions=captions,
                                   links=links, programs=programs))  # fmt: skip


def split_brain() -> Result:
    """Made up, with two stores that disagree."""
    captions = (
        caption("naive", "The cut. The left side goes on renewing for A.", "网络切断。左边继续为 A 续约。",
                process="network", call="fault", kind="invoke"),
        caption("naive", "On the right A's lease has run out, and a new master is elected.",
                "在右边，A 的租约已经到期，新的主节点当选。", process="right", call="promote"),
        caption("naive", "B is let in. Both sides have a holder, and both are at work for {overlap}.",
                "B 进入。两边各有一个持有者，同时工作 {overlap}。", process="B", call="grant"),
        caption("ours", "A's own deadline passes and A stops, although the left store still names it.",
                "A 自己的期限到了，它停止工作，尽管左边的存储仍写着它的名字。", process="A", call="body", kind="fail"),
    )  # fmt: skip
    title = Text("One lock, two masters", "一把锁，两个主节点")
    return kept("split-brain", Sample(17, "split-brain", title, captions=captions, needs="sentinel"))


def crash_before_del() -> Result:
    """A key without a ttl outlives its owner."""

    def of(run: str, ttl: float) -> list[Record]:
        until = ttl and 1.0 + ttl
        found = [
            record(1.0, "A", "acquire", "invoke"),
            record(1.001, "redis", "hold", holder="A", deadline=until, token=11 if ttl else 0),
            record(1.002, "A", "grant", deadline=until and until - 0.02, token=11 if ttl else 0, line=22),
            record(1.1, "B", "acquire", "invoke", line=22),
            record(1.2, "resource", "accept", holder="A", value=1, token=11 if ttl else 0),
            record(1.4, "A", "fault", "invoke", attempt="kill", error="killed"),
        ]
        if ttl:
            found += [
                record(until, "redis", "hold", "fail", holder="A", error="lapsed"),
                record(until + 0.002, "redis", "hold", holder="B", deadline=until + ttl, token=12),
                record(until + 0.003, "B", "grant", token=12, deadline=until + ttl - 0.02),
                record(until + 0.2, "resource", "accept", holder="B", value=2, token=12),
                record(until + 0.3, "B", "body"),
                record(until + 0.301, "redis", "hold", "fail", holder="B", error="released"),
                record(until + 0.302, "B", "end"),
            ]
        else:
            found += [record(4.4, "B", "acquire", "fail", error="waited for three ttls")]
        return in_run(run, found)

    captions = (
        caption("naive", "A dies between SETNX and DEL.", "A 在 SETNX 和 DEL 之间死去。", process="A", call="fault"),
        caption("naive", "B has waited for {waited}, and would wait for ever.", "B 等了 {waited}，而且会永远等下去。",
                process="B", call="acquire", kind="fail"),
        caption("ours", "One ttl later the store lets B in.", "一个 ttl 之后，存储让 B 进入。", process="B", call="grant"),
    )  # fmt: skip
    title = Text("Killed before DEL", "在 DEL 之前被杀死")
    return judged(
        Sample(2, "crash-before-del", title, captions=captions), [*of("naive", 0.0), *of("ours", 1.0)]
    )


def no_lock() -> Result:
    """Eight clients at once, first without a lock."""
    chance = Random(3)
    naive, ours = list[Record](), list[Record]()
    value, clock = 0, 0.2
    for name in "ABCDEFGH":
        start = 0.02 + chance.random() * 0.1
        naive.append(record(start, name, "grant"))
        for step in range(4):
            naive.append(record(start + 0.15 * (step + 1), "resource", "accept", holder=name, value=step + 1))
        naive.append(record(start + 0.62, name, "body"))
        ours.append(record(0.1, name, "acquire", "invoke"))
    for token, name in enumerate("CAHBEDGF", 1):
        ours += [
            record(clock, "redis", "hold", holder=name, token=token, deadline=clock + 1),
            record(clock + 0.001, name, "grant", token=token, deadline=clock + 0.98),
        ]
        for step in range(4):
            value += 1
            ours.append(
                record(clock + 0.02 * (step + 1), "resource", "accept", holder=name, value=value, token=token)
            )
        ours += [
            record(clock + 0.09, name, "body"),
            record(clock + 0.091, "redis", "hold", "fail", holder=name, token=token, error="released"),
            record(clock + 0.092, name, "end", token=token),
        ]
        clock += 0.1
    title = Text("Eight writers, no lock", "八个写者，没有锁")
    return judged(Sample(1, "no-lock", title, needs=""), [*in_run("naive", naive), *in_run("ours", ours)])


def poll_or_push() -> Result:
    """A scenario about numbers alone."""
    measures = {
        "handover": Measure(Text("time of a hand-over (median)", "交接时间（中位数）"), "s"),
        "requests": Measure(Text("requests for a hand-over", "每次交接的请求数")),
    }
    numbers = {
        "naive": {"handover": 0.0512, "requests": 988.0},
        "ours": {"handover": 0.0007, "requests": 1.0},
    }
    records = [
        record(float(index), "director", "measure", run=run, attempt=name, amount=amount)
        for run, found in numbers.items()
        for index, (name, amount) in enumerate(found.items())
    ]

    class Numbers(Sample):
        def verdict(self, run: Run) -> Text:
            facts = run.facts()
            return Text(f"A hand-over took {run.measures()['handover'] * 1000:.1f} ms and {facts['requests']} requests.",
                        f"一次交接用时 {run.measures()['handover'] * 1000:.1f} ms，{facts['requests']} 个请求。")  # fmt: skip

    title = Text("Polling, or being told", "轮询，还是被通知")
    return judged(Numbers(14, "poll-or-push", title, measures=measures), records)


SOLD = {"no-lock": (732, 9100.0, 0.0, 0.0), "blind": (246, 1500.0, 0.012, 0.09), "compare": (164, 1400.0, 0.013, 0.1),
        "misused": (116, 300.0, 0.05, 0.4), "ours": (60, 210.0, 0.08, 0.5), "guard": (60, 200.0, 0.08, 0.5),
        "script": (60, 12000.0, 0.0008, 0.002), "decr": (60, 14000.0, 0.0007, 0.002)}  # fmt: skip
STRATEGIES = {
    "no-lock": Text("no lock", "不加锁"), "blind": Text("SET NX, blind DEL", "SET NX，直接 DEL"),
    "compare": Text("SET NX, compare, DEL", "SET NX，比较后 DEL"), "misused": Text("interlock, renew=False, no guard", "interlock，renew=False，无 guard"),
    "ours": Text("interlock", "interlock"), "guard": Text("interlock with guard", "interlock 加 guard"),
    "script": Text("atomic script, no lock", "原子脚本，不用锁"), "decr": Text("DECR, no lock (stock ends at -4)", "DECR，不用锁（库存变为 -4）"),
}  # fmt: skip


def flash_sale() -> Result:
    """Strategies that are compared by what they sold; the speeds are made up."""
    measures = {
        "sold": Measure(Text("sold", "卖出")), "rate": Measure(Text("per second", "每秒")),
        "p50": Measure(Text("wait, p50", "等待 p50"), "s"), "p99": Measure(Text("wait, p99", "等待 p99"), "s"),
    }  # fmt: skip
    groups = {"ours": "ours", "guard": "guard", "script": "none", "decr": "none"}
    records = list[Record]()
    for time, (strategy, numbers) in enumerate(SOLD.items()):
        run = groups.get(strategy, "naive")
        records.append(record(float(time), "director", "measure", run=run, attempt="stock", amount=60.0))
        for name, amount in zip(measures, numbers, strict=True):
            records.append(
                record(float(time), strategy, "measure", run=run, attempt=name, amount=float(amount))
            )

    class Sale(Sample):
        def verdict(self, run: Run) -> Text:
            sold = [int(one.amount) for one in run.records if one.attempt == "sold"]
            return Text(f"Up to {max(sold)} sold of 60.", f"库存 60，最多卖出 {max(sold)}。")

    title, lesson = Text("Sixty in stock", "库存六十件"), Text(
        "Sometimes the right lock is none: one atomic statement sells exactly the stock, and nobody waits.",
        "有时最好的锁是不用锁：一条原子语句正好卖完库存，没有人等待。",
    )  # fmt: skip
    sale = Sale(
        46, "flash-sale", title, measures=measures, strategies=STRATEGIES, bound="stock", lesson=lesson
    )
    return judged(sale, records)


def soak_records(grants: int = 3000, clients: int = 24, seed: int = 1) -> list[Record]:
    """A long history: grants one after the other, faults, a few losses, and one late write."""
    chance = Random(seed)
    found, time, token = list[Record](), 0.0, 1000
    for number in range(grants):
        name = f"w{chance.randrange(clients)}"
        lasts = 0.005 + chance.random() * 0.02 * (1 + (number * 5 // grants))
        token += 1
        lost = chance.random() < 0.004
        found += [
            record(time - chance.random() * 0.05, name, "acquire", "invoke"),
            record(time, "redis", "hold", holder=name, token=token, deadline=time + 1),
            record(time + 0.0005, name, "grant", token=token, deadline=time + 0.98),
            record(
                time + lasts * 0.5, "resource", "accept", "fail" if lost else "ok", holder=name, token=token
            ),
            record(
                time + lasts * 0.9, name, "body", "fail" if lost else "ok", error="LeaseLost" if lost else ""
            ),
            record(
                time + lasts, "redis", "hold", "fail", holder=name, error="lapsed" if lost else "released"
            ),
            record(time + lasts + 0.0002, name, "end", "info" if lost else "ok", token=token),
        ]
        if number % 60 == 30:
            fault = chance.choice(["paused", "cut", "slow"])
            found += [
                record(time, "network", "fault", "invoke", attempt=str(number), error=fault),
                record(time + 0.4, "network", "fault", "ok", attempt=str(number), error=fault),
            ]
        time += lasts + 0.003
    late = next(one for one in found if one.call == "accept" and one.time > time * 0.5)
    found.append(record(late.time + 1.5, "resource", "accept", holder=late.holder, token=late.token))
    return found


def soak() -> Result:
    title = Text("A long storm", "一场长时间的风暴")
    records = [*in_run("naive", soak_records(400, 16, 2)), *in_run("ours", soak_records())]
    return judged(Sample(99, "soak", title), records)


def strange() -> Result:
    """Names and errors as an attacker would choose them, and an outcome that cannot be said."""
    evil = "<script>alert(1)</script>\"'&"
    records = [
        record(0.0, evil, "acquire", "invoke"),
        record(0.1, "store" + evil, "hold", holder=evil, deadline=5.0),
        record(0.2, evil, "grant", deadline=4.9),
        record(0.3, evil, "whatever", "info", error=evil),
        record(0.4, evil, "fault", "invoke", error=evil),
        record(0.5, evil, "fault", "ok", error=evil),
        record(0.6, "resource", "accept", "fail", holder=evil, error=evil),
        record(0.7, evil, "note", error=evil),
        record(1.0, evil, "body", "fail", error=evil),
    ]
    scenario = Sample(50, evil, Text(evil, evil), story=Text(evil, evil), lesson=Text(evil, evil), needs=evil,
                      links=(Link(evil, "https://example.org/?" + evil),),
                      captions=(caption("naive", "it is {nothing}", "{nothing}", call="grant"),))  # fmt: skip
    result = judged(scenario, in_run("naive", records))
    result.findings["naive"] = Finding(Outcome.CANNOT_SAY, Text(evil, evil))
    return result


def missing() -> Result:
    """Not played, because a server is not installed."""
    scenario = Sample(33, "etcd-pause", Text("A pause, on etcd", "停顿，在 etcd 上"), needs="etcd")
    return Result(scenario, skipped="etcd is not installed", missing="etcd-server")


def results() -> list[Result]:
    """One of each."""
    return [
        no_lock(),
        crash_before_del(),
        poll_or_push(),
        split_brain(),
        gc_pause(),
        missing(),
        flash_sale(),
        soak(),
    ]
