"""`python -m benchmarks`: ask, show, keep."""

from __future__ import annotations

import argparse
import traceback
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from benchmarks import history, pace, report
from benchmarks.question import Question, Result
from benchmarks.rounds import ask

STORES = {
    "embedded": ("benchmarks.embedded",),
    "redis": ("benchmarks.redis", "benchmarks.contended"),
    "redlock": ("benchmarks.redlock",),
    "etcd": ("benchmarks.etcd",),
    "zookeeper": ("benchmarks.zookeeper",),
    "postgresql": ("benchmarks.postgresql",),
    "mysql": ("benchmarks.mysql",),
}
"""The modules with the questions about each store. `dev.py` installs the peers that `bench-STORE` of pyproject.toml names."""


def load() -> dict[str, list[Question]]:
    """The questions about each store."""
    return {
        store: [question for name in modules for question in import_module(name).questions()]
        for store, modules in STORES.items()
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="dev.py bench", description="Ask how fast interlock is.")
    parser.add_argument("questions", nargs="*", help="names of questions, or how they begin; default: all")
    parser.add_argument("--list", action="store_true", help="list the questions")
    parser.add_argument("--quick", action="store_true", help="short rounds, only to see that all works")
    parser.add_argument("--rounds", type=int, help="rounds for each question")
    parser.add_argument("--cores", type=int, choices=(1, 2), help="only on so many cores")
    parser.add_argument(
        "--alone", action="store_true", help="without the peers: only the limit and interlock"
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help="append the results to benchmarks/history.csv, and say what is worse",
    )
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="where JSON and chart go")
    options = parser.parse_args(argv)
    known = load()
    if options.list:
        for store, questions in known.items():
            report.say(f"\n{store}")
            for question in questions:
                report.say(f"  {question.name:<22} {question.title}")
        return 0
    try:
        wanted = select(known, options.questions)
    except LookupError as unknown:
        parser.error(f"no such question: {unknown}; --list shows them")
    if options.alone:
        wanted = [alone(question) for question in wanted]
    if options.quick:
        pace.hurry()
    asked = [(q, cores) for q in wanted for cores in q.cores if options.cores in (None, cores)]
    if options.record and pace.hurried():
        parser.error("--quick measures nothing that is worth recording")
    return ask_all(asked, options.rounds, options.out, recorded=options.record)


def select(known: dict[str, list[Question]], names: list[str]) -> list[Question]:
    """The questions of these names: a name is that of a store, or how a question's name begins. All, if there are none."""
    every = [question for questions in known.values() for question in questions]
    wanted: list[Question] = []
    for name in names:
        wanted += (found := [*known.get(name, ()), *(q for q in every if q.name.startswith(name))])
        if not found:
            raise LookupError(name)
    return [question for question in every if question in wanted] if names else every


def alone(question: Question) -> Question:
    """The same question without the peers, which take most of its time."""
    limit, *others = question.cases
    return replace(question, cases=[limit, *(case for case in others if case.name.startswith("interlock"))])


def ask_all(
    asked: list[tuple[Question, int]], rounds: int | None, out: Path, *, recorded: bool = False
) -> int:
    """Ask one after the other; one that breaks does not cost the others their answers."""
    results: list[Result] = []
    broken: list[str] = []
    worse: list[str] = []
    for number, (question, cores) in enumerate(asked, 1):
        try:
            results.append(ask(question, cores, rounds, f"[{number}/{len(asked)}] "))
        except Exception:
            broken.append(question.name)
            report.say(f"\n{question.name} broke:\n{traceback.format_exc()}")
        else:
            report.say(report.table(results[-1]))
            keep(results, out)
            worse += history.record(results[-1:]) if recorded else []  # at once: a run may be interrupted
    report.say(f"\nwritten: {out}/results.json and chart.svg" if results else "\nnothing was measured")
    if recorded:
        report.say(
            "recorded in benchmarks/history.csv; " + ("worse than before:" if worse else "nothing is worse")
        )
        report.say("".join(f"  {sentence}\n" for sentence in worse))
    if pace.hurried():
        report.say("--quick: these figures show that the questions can be asked; they are no answers")
    if broken:
        report.say(f"broke: {', '.join(broken)}")
    return 1 if broken else 0


def keep(results: list[Result], out: Path) -> None:
    """Write what is known so far: who is interrupted in the last question keeps the others."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(report.as_json(results), encoding="utf-8")
    (out / "chart.svg").write_text(report.as_svg(results), encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
