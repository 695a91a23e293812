"""cannot-refuse: a file takes whatever it is given, so a late holder puts the old over the new."""

from __future__ import annotations

from pathlib import Path

from interlock import StaleToken, guards
from interlock.lab.judge import Run
from interlock.lab.scenario import Caption
from interlock.lab.sqlite_scenario import SqliteScenario
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me


def naive(me: Me) -> None:
    report, client = Path(me.settings["folder"], "report.csv"), me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        lease.check()
        me.at("before the write")
        report.write_text(f"written by {me.name}")
        me.wrote(1 if me.name == "A" else 2, lease.token)


def ours(me: Me) -> None:
    report, client = Path(me.settings["folder"], "report.csv"), me.interlock()
    me.begins()
    with client.lock("report") as lease, me.inside(lease):
        lease.check()
        me.at("before the write")
        value = 1 if me.name == "A" else 2
        try:
            guards.file.write(report, f"written by {me.name}", "report", lease.token)
        except StaleToken:
            me.was_refused(value, lease.token, "StaleToken")
            raise
        me.wrote(value, lease.token)


class CannotRefuse(SqliteScenario):
    number = 44
    name = "cannot-refuse"
    title = Text("A file cannot refuse", "文件不会拒绝")
    story = Text(
        "A is stopped just before it writes its report; its lease lapses, and B writes a newer one. "
        "A goes on, past its last check, and puts its old report over B's.",
        "A 正要写报告时被暂停；租约到期，B 写下了更新的报告。A 恢复运行，已经越过最后一次检查，用旧报告覆盖了 B 的。",
    )
    lesson = Text(
        "Where the resource cannot compare tokens, put something in front of it that can.",
        "资源自己不会比较令牌，就在它前面放一个会比较的东西。",
    )
    programs = {"naive": naive, "ours": ours}
    takes = 5.0
    captions = (
        Caption("naive", {"process": "resource", "call": "accept", "holder": "B"},
                Text("B writes the newer report.", "B 写下更新的报告。")),
        Caption("naive", {"process": "resource", "call": "accept", "holder": "A"},
                Text("A wakes up past its check, and the old report is over the new one.",
                     "A 醒来时已越过检查，旧报告盖住了新报告。")),
        Caption("ours", {"process": "resource", "call": "accept", "kind": "fail"},
                Text("The guard knows a newer token: StaleToken, and B's report stays.",
                     "guard 见过更新的令牌：StaleToken，B 的报告得以保留。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        where = self.where(stage)
        a = stage.client("A", stops_at=("before the write",), **where)
        b = stage.client("B", **where)
        self.watch(stage)
        a.go()
        a.reach("before the write")
        with stage.paused(a):
            b.go()
            b.finish()
            a.go()
        stage.finish()
        text = (stage.folder / "report.csv").read_text()
        stage.add("measure", "ok", attempt="newest", amount=float(text == "written by B"))

    def naive_failed(self, run: Run) -> bool | None:
        return run.measures().get("newest") == 0

    def ours_survived(self, run: Run) -> bool | None:
        return run.measures().get("newest") == 1 and bool(run.writes("fail"))

    def verdict(self, run: Run) -> Text:
        if run.measures().get("newest") == 0:
            return Text("The old report is over the new one.", "旧报告盖住了新报告。")
        return Text("The new report stayed; the old one was refused.", "新报告保留，旧报告被拒绝。")
