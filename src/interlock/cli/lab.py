"""`interlock lab`: the famous failures of distributed locks, seen on real servers."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock._support.wording import duration
from interlock.cli import exit_codes, lab_chaos, lab_model
from interlock.cli.output import Output

if TYPE_CHECKING:
    from interlock.lab.scenario import Result
    from interlock.lab.texts import Language

SKIPPED = 77  # as automake and Debian have it: not played, so neither green nor red
AT_ONCE = 3


def lab(options: Namespace, output: Output) -> int:
    """Do what `interlock lab ACTION` says."""
    return _ACTIONS[options.action](options, output)


def _list(options: Namespace, output: Output) -> int:
    from interlock.lab.scenarios import NAMES, load

    language = language_of(options)
    scenarios = [load(name) for name in NAMES]
    if output.json:
        for one in scenarios:
            title, servers = one.title.in_language(language), ", ".join(one.servers)
            output.document(
                {"name": one.name, "number": one.number, "servers": servers, "seconds": one.takes,
                 "title": title}
            )  # fmt: skip
        return 0
    for one in scenarios:
        title, servers = one.title.in_language(language), ", ".join(one.servers)
        output.line(f"{one.name:<24} {servers:<18} {duration(one.takes):>6}  {title}")
    output.line("")
    output.line(
        "interlock lab run NAME plays one; interlock lab all --report lab.html plays all and draws them"
    )
    return 0


def _run(options: Namespace, output: Output) -> int:
    from interlock.lab.runner import played
    from interlock.lab.scenarios import load
    from interlock.lab.screen import screen_for

    scenarios = [load(name) for name in options.names]
    results: list[Result] = []
    for scenario in scenarios:
        with screen_for(scenario, output, language_of(options)) as screen:
            result = played(scenario, watching=screen.show, **_settings(options))
            screen.conclude(result)
        results.append(result)
        _tell_program(result, output)
    return _end(results, options, output)


def _all(options: Namespace, output: Output) -> int:
    from interlock.lab.crew import all_played
    from interlock.lab.scenarios import NAMES
    from interlock.lab.screen import Progress

    language = language_of(options)
    results: list[Result] = []
    with Progress(output, len(NAMES)) as progress:
        for result in all_played(NAMES, AT_ONCE, progress.tick, **_settings(options)):
            results.append(result)
            progress.show(result, language)
            _tell_program(result, output)
    results.sort(key=lambda result: NAMES.index(result.scenario.name))
    if not output.json:
        for line in _summary(results):
            output.line(line)
    return _end(results, options, output)


def _settings(options: Namespace) -> dict[str, Any]:
    from interlock.lab.scenario import NAIVE, RUN_NAMES

    wanted = {None: (), "naive": (NAIVE,), "ours": tuple(name for name in RUN_NAMES if name != NAIVE)}
    return {"seed": options.seed, "only": wanted[options.only], "slow": options.slow}


def _summary(results: Iterable[Result]) -> list[str]:
    from interlock.lab.scenario import Outcome

    found = list(results)
    counts = {outcome: sum(result.outcome is outcome for result in found) for outcome in Outcome}
    skipped = [result for result in found if result.outcome is None]
    lines = [""]
    lines.append(
        f"{counts[Outcome.AS_EXPECTED]} as expected, {counts[Outcome.NOT_AS_EXPECTED]} not as expected, "
        f"{counts[Outcome.CANNOT_SAY]} cannot say, {len(skipped)} skipped"
    )
    if packages := sorted({result.missing for result in skipped if result.missing}):
        lines.append(f"for those that were skipped: apt-get install {' '.join(packages)}")
    return lines


def _tell_program(result: Result, output: Output) -> None:
    if output.json:
        outcome = result.outcome
        output.document(
            {
                "name": result.scenario.name,
                "outcome": "skipped" if outcome is None else outcome.name.lower(),
                "why": result.skipped or result.failure,
                "seed": result.seed,
                "seconds": round(result.took, 2),
                "runs": {
                    name: {
                        "outcome": finding.outcome.name.lower(),
                        "text": {"en": finding.text.en, "zh": finding.text.zh},
                        "facts": result.runs[name].facts(),
                    }
                    for name, finding in result.findings.items()
                },
            }
        )


def _end(results: list[Result], options: Namespace, output: Output) -> int:
    """Write what was asked for; return the exit code."""
    if options.report:
        _write_report(Path(options.report), results, options, output)
    if getattr(options, "figure", None):  # `lab all` draws none
        code = _draw(Path(options.figure), results, options, output)
        if code:
            return code
    outcomes = [result.outcome for result in results]
    for code in (1, 2):
        if code in [outcome for outcome in outcomes if outcome is not None]:
            return code
    return SKIPPED if None in outcomes else 0


def _write_report(path: Path, results: list[Result], options: Namespace, output: Output) -> None:
    from datetime import datetime
    from platform import platform

    from interlock.lab.report import write_report

    made, machine, language = datetime.now().astimezone(), platform(terse=True), language_of(options)
    try:
        write_report(path, results, made=made, machine=machine, language=language)
    except OSError as error:
        output.error(f"{path} cannot be written: {error.strerror}", exit_codes.UNWRITABLE)
        return
    if not output.json:
        output.line(
            f"the report is in {path}; `interlock lab replay {path.with_suffix('.jsonl')}` judges again"
        )


def _draw(path: Path, results: list[Result], options: Namespace, output: Output) -> int:
    from interlock.lab.report import drawn

    played = [result for result in results if result.runs]
    if len(played) != 1:
        output.error(f"--figure draws one scenario, and {len(played)} were played", exit_codes.USAGE)
        return exit_codes.USAGE
    try:
        path.write_text(drawn(played[0], language_of(options)), encoding="utf-8")
    except OSError as error:
        output.error(f"{path} cannot be written: {error.strerror}", exit_codes.UNWRITABLE)
        return exit_codes.UNWRITABLE
    return 0


def _replay(options: Namespace, output: Output) -> int:
    from interlock.lab.report import read_history
    from interlock.lab.scenarios import load
    from interlock.lab.screen import conclusion
    from interlock.lab.storm.history import is_storm

    try:
        if is_storm(Path(options.file)):
            return lab_chaos.replay(options, output)
        kept = read_history(Path(options.file))
    except OSError as error:
        output.error(f"{options.file} cannot be read: {error.strerror}", exit_codes.USAGE)
        return exit_codes.USAGE
    results = [one.judged(load(one.scenario)) for one in kept]
    for result in results:
        _tell_program(result, output)
        for line in [] if output.json else conclusion(result, language_of(options), output):
            output.line(line)
    return _end(results, options, output)


def language_of(options: Namespace) -> Language:
    """The language that was asked for, or that of the environment."""
    if options.lang is not None:
        return "zh" if options.lang == "zh" else "en"
    import os

    asked = os.environ.get("LC_ALL") or os.environ.get("LC_MESSAGES") or os.environ.get("LANG") or ""
    return "zh" if asked.lower().startswith("zh") else "en"


def demo(options: Namespace, output: Output) -> int:
    """Show interlock at work on this machine, beside a naive lock."""
    from interlock.lab.demo import main

    return main(["--fast"] if options.fast else [])


_ACTIONS: dict[str, Callable[[Namespace, Output], int]] = {
    "list": _list,
    "run": _run,
    "all": _all,
    "replay": _replay,
    "chaos": lab_chaos.chaos,
    "model": lab_model.model,
}
