"""What the report says about events, faults and outcomes, in both languages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from interlock.lab.judge import Run
from interlock.lab.scenario import NAIVE, RUN_NAMES, Finding, Outcome
from interlock.lab.texts import LANGUAGES, Language, Text
from interlock.testing.history import Record

_EVENTS: dict[tuple[str, str], Text] = {
    ("acquire", "invoke"): Text("{process} asks for the lock", "{process} 请求锁"),
    ("acquire", "fail"): Text("{process} gives up: {error}", "{process} 放弃：{error}"),
    ("acquire", "info"): Text(
        "{process} does not know whether it got the lock: {error}", "{process} 不知道是否拿到锁：{error}"
    ),
    ("release", "invoke"): Text("{process} asks to release", "{process} 请求释放"),
    ("release", "ok"): Text("{process} has released", "{process} 已释放"),
    ("release", "fail"): Text(
        "{process} had nothing to release: {error}", "{process} 没有可释放的锁：{error}"
    ),
    ("release", "info"): Text(
        "{process} does not know whether it released: {error}", "{process} 不知道是否已释放：{error}"
    ),
    ("grant", "ok"): Text("{process} gets the lock", "{process} 得到锁"),
    ("renew", "ok"): Text("{process} knows that its lease was renewed", "{process} 得知续约成功"),
    ("renew", "fail"): Text(
        "{process} learns that its lease was not renewed: {error}", "{process} 得知续约失败：{error}"
    ),
    ("renew", "info"): Text(
        "{process}'s renewal is not confirmed: {error}", "{process} 的续约没有得到确认：{error}"
    ),
    ("hold", "ok"): Text(
        "{process} has {holder} as the holder{until}", "{process}：持有者是 {holder}{until}"
    ),
    ("hold", "fail"): Text(
        "{process} has no holder any more: {holder}'s lease {error}",
        "{process}：不再有持有者，{holder} 的租约结束：{error}",
    ),
    ("promote", "ok"): Text(
        "{process} is the one that decides now: {error}", "{process} 现在说了算：{error}"
    ),
    ("accept", "ok"): Text("the resource accepts a write of {holder}", "资源接受 {holder} 的写入"),
    ("accept", "fail"): Text(
        "the resource refuses a write of {holder}: {error}", "资源拒绝 {holder} 的写入：{error}"
    ),
    ("fault", "invoke"): Text("fault begins: {process} {error}", "故障开始：{process} {error}"),
    ("fault", "ok"): Text("fault ends: {process} {error}", "故障结束：{process} {error}"),
    ("heal", "ok"): Text("the last fault has healed", "最后一个故障已恢复"),
    ("check", "ok"): Text("{process} is told that its lease is valid", "{process} 得知租约有效"),
    ("shrink", "ok"): Text("{process} gives back a part of its permits", "{process} 归还部分许可"),
    ("body", "ok"): Text("{process} has done its work", "{process} 完成工作"),
    ("body", "fail"): Text("{process} stops its work: {error}", "{process} 停止工作：{error}"),
    ("end", "ok"): Text("{process} lets go: {error}", "{process} 放手：{error}"),
    ("end", "info"): Text("{process} has been told of its loss: {error}", "{process} 得知失去租约：{error}"),
    ("note", "ok"): Text("{process}: {error}", "{process}：{error}"),
    ("measure", "ok"): Text("{process} measured {attempt}: {amount}", "{process} 测得 {attempt}：{amount}"),
    ("touch", "fail"): Text(
        "{process} changed a claim of another: {error}", "{process} 改动了别人的请求：{error}"
    ),
    ("left", "fail"): Text("something stayed behind: {error}", "有东西遗留：{error}"),
    ("broken", "fail"): Text("a promise was broken: {error}", "违反承诺：{error}"),
}

_ERRORS: dict[str, str] = {  # what faults and leases are called in Chinese; others stay as they were written
    "paused": "停顿", "resumed": "恢复运行", "killed": "被杀死", "restarted": "重新启动", "cut": "切断",
    "healed": "恢复", "muted": "静默", "mute": "静默", "deaf": "失聪", "slow": "变慢", "hung": "挂起",
    "stopped": "停止", "promoted": "升为主节点", "lapsed": "到期", "released": "已释放", "lost": "丢失",
    "evicted": "被驱逐", "jumped": "跳变", "crashed": "崩溃", "frozen": "冻结", "answers lost": "回复丢失",
    "clock jumped": "时钟跳变", "restarted empty": "重启后为空",
    "cut off": "断开", "not copying": "停止复制", "set back": "拨回", "too fast": "走得太快",
    "lost one of three": "三台失去一台",
}  # fmt: skip

_PRODUCTS = {
    "redis": "Redis", "valkey": "Valkey", "etcd": "etcd", "zookeeper": "ZooKeeper", "postgres": "PostgreSQL",
    "mariadb": "MariaDB", "mysql": "MySQL", "sqlite": "SQLite",
}  # fmt: skip

STORE_NAMES = ("store", "")
"""Names of a store that say nothing: there is only one."""

OUTCOMES: dict[Outcome, Text] = {
    Outcome.AS_EXPECTED: Text("as expected", "符合预期"),
    Outcome.NOT_AS_EXPECTED: Text("not as expected", "不符合预期"),
    Outcome.CANNOT_SAY: Text("cannot say", "无法判断"),
}

CLASSES: dict[Outcome, str] = {
    Outcome.AS_EXPECTED: "good",
    Outcome.NOT_AS_EXPECTED: "broken",
    Outcome.CANNOT_SAY: "unknown",
}
"""The classes of outcomes in the style sheet; a naive lock that failed as expected is `bad`."""


def both(text: Text, tag: str = "span") -> str:
    """A text in two languages, of which the page shows one."""
    if text.en == text.zh:
        return escape(text.en)
    return "".join(
        f'<{tag} lang="{language}">{escape(text.in_language(language))}</{tag}>' for language in LANGUAGES
    )


def in_one(text: Text, language: Language | None) -> str:
    """A text in one language as plain words, or in both, one below the other, as for a title of SVG."""
    if language:
        return text.in_language(language)
    return text.en if text.en == text.zh else f"{text.en}\n{text.zh}"


def run_name(name: str) -> Text:
    """What a run is called in a heading."""
    known = RUN_NAMES.get(name, Text(name, name))
    return Text(known.en[0].upper() + known.en[1:], known.zh) if name == NAIVE else known


def fault_word(word: str) -> Text:
    """What was done, such as "paused"; words that are not known stay English."""
    return Text(word, _ERRORS.get(word, word))


def sentence(record: Record) -> Text:
    """What one record says."""
    pattern = _EVENTS.get((record.call, record.kind))
    if pattern is None:
        told = f"{record.process}: {record.call} {record.kind} {record.error}".strip()
        return Text(told, told)
    until = (
        Text(f" until {record.deadline:.3f} s", f"，到 {record.deadline:.3f} 秒")
        if record.deadline
        else Text("", "")
    )
    fields = {
        "process": record.process, "holder": record.holder or record.process, "attempt": record.attempt,
        "amount": f"{record.amount:,.6g}",
    }  # fmt: skip
    error = fault_word(record.error)
    en = pattern.en.format(**fields, error=error.en, until=until.en)
    zh = pattern.zh.format(**fields, error=error.zh, until=until.zh)
    return Text(en.rstrip(": "), zh.rstrip("： "))


def version_name(text: str) -> str:
    """The product and its number, from what a server says about its own version."""
    number = re.search(r"\d+(?:\.\d+)+", text)
    product = next((name for word, name in _PRODUCTS.items() if word in text.lower()), "")
    return f"{product} {number.group()}" if number and product else text


def short_token(token: int, tokens: Iterable[int]) -> str:
    """The digits in which the tokens of a run differ: short, and their order can still be seen."""
    if token < 10_000:
        return str(token)
    columns = zip(*map(str, tokens), strict=False)
    same = next((place for place, digits in enumerate(columns) if len(set(digits)) > 1), len(str(token)))
    start = min(same, len(str(token)) - 2)
    return "…" + str(token)[start : start + 4]


def tokens_of(run: Run) -> list[int]:
    """All tokens that occur in a run."""
    return sorted({record.token for record in run.records if record.token})


def sign(run_name: str, finding: Finding, *, naive_fails: bool = True) -> tuple[str, str, Text]:
    """The class, the sign and the word of an outcome. The naive lock is there to fail; few do not."""
    if finding.outcome is Outcome.CANNOT_SAY:
        return "unknown", "?", OUTCOMES[Outcome.CANNOT_SAY]
    expected = finding.outcome is Outcome.AS_EXPECTED
    if run_name == NAIVE and not (expected and not naive_fails):
        return (
            ("bad", "✗", Text("fails", "失败"))
            if expected
            else ("broken", "!", Text("not reproduced", "未能重现"))
        )
    return (
        ("good", "✓", Text("holds", "守住"))
        if expected
        else ("broken", "!", Text("broken promise", "违反承诺"))
    )
