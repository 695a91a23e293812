"""`python -m benchmarks`: ask, show, keep."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from benchmarks import report
from benchmarks.question import Question, Result
from benchmarks.rounds import ask

MODULES = ("benchmarks.embedded", "benchmarks.redis")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="dev.py bench", description="Ask how fast interlock is.")
    parser.add_argument("questions", nargs="*", help="names of questions; all by default")
    parser.add_argument("--list", action="store_true", help="list the questions")
    parser.add_argument("--rounds", type=int, help="rounds for each question")
    parser.add_argument("--cores", type=int, choices=(1, 2), help="only on so many cores")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="where JSON and chart go")
    options = parser.parse_args(argv)
    known: dict[str, Question] = {q.name: q for name in MODULES for q in import_module(name).questions()}
    if options.list:
        for question in known.values():
            report.say(f"{question.name:<20} {question.title}")
        return 0
    unknown = [name for name in options.questions if name not in known]
    if unknown:
        parser.error(f"no such question: {', '.join(unknown)}; --list shows them")
    results: list[Result] = []
    for name in options.questions or known:
        for cores in known[name].cores:
            if options.cores in (None, cores):
                results.append(ask(known[name], cores, options.rounds))
                report.say(report.table(results[-1]))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(report.as_json(results), encoding="utf-8")
    (options.out / "chart.svg").write_text(report.as_svg(results), encoding="utf-8")
    report.say(f"\nwritten: {options.out}/results.json and chart.svg")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
