"""no-lock: eight processes read a number, add one, and write it."""

from __future__ import annotations

from interlock.lab.judge import Run
from interlock.lab.scenario import Caption, Scenario
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.lab.worker import Me

PROCESSES = 8
ROUNDS = 8


def naive(me: Me) -> None:
    me.begins()
    with me.inside():
        for _ in range(ROUNDS):
            value = me.read()
            me.think(0.002)
            me.write(value + 1)


def ours(me: Me) -> None:
    client = me.interlock()
    me.begins()
    for _ in range(ROUNDS):
        with client.lock("report") as lease, me.inside(lease):
            value = me.read(lease.token)
            me.think(0.002)
            me.write(value + 1, lease.token)


class NoLock(Scenario):
    number = 1
    name = "no-lock"
    title = Text("Eight processes, one number, no lock", "八个进程、一个数字、没有锁")
    story = Text(
        "Eight processes each read a number, add one and write it back, eight times. "
        "Two that read the same number write the same number, and one of the two additions is gone.",
        "八个进程各自把一个数字读出、加一、写回，重复八次。两个进程读到同一个数字就会写回同一个数字，其中一次加法就此消失。",
    )
    lesson = Text(
        "Read, change and write are three steps; a lock makes them one. Its file needs no server.",
        "读、改、写是三步；锁把它们变成一步。这把锁只需要一个文件，不需要服务器。",
    )
    needs = "none"
    programs = {"naive": naive, "ours": ours}
    guarded = ("ours",)
    takes = 4.0
    captions = (
        Caption("naive", {"process": "resource", "call": "accept"},
                Text("All write at once: {lost} of the additions are lost.", "所有进程同时写：丢失了 {lost} 次加法。")),
        Caption("ours", {"process": "resource", "call": "accept"},
                Text("One after the other; every token is higher than the one before.", "一个接一个；每个令牌都比前一个大。")),
    )  # fmt: skip

    def play(self, stage: Stage) -> None:
        url = f"sqlite:///{stage.folder}/locks.db"
        clients = [stage.client(f"p{number}", url=url) for number in range(1, PROCESSES + 1)]
        for client in clients:
            client.go()
        stage.finish()

    def naive_failed(self, run: Run) -> bool | None:
        return run.lost_updates > 0

    def ours_survived(self, run: Run) -> bool | None:
        tokens = run.tokens()
        return (
            run.lost_updates == 0
            and len(run.writes("ok")) == PROCESSES * ROUNDS
            and len(set(tokens)) == len(tokens) == PROCESSES * ROUNDS
        )

    def verdict(self, run: Run) -> Text:
        done, lost = len(run.writes("ok")), run.lost_updates
        if lost:
            return Text(f"{lost} of {done} additions were lost.", f"{done} 次加法丢失了 {lost} 次。")
        return Text(f"All {done} additions are there.", f"{done} 次加法一次不少。")
