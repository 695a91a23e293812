"""`interlock lab chaos`: random faults on throw-away servers, and a verdict; also on kept histories."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from interlock._support.wording import duration
from interlock.cli import exit_codes
from interlock.cli.output import Output

if TYPE_CHECKING:
    from interlock.lab.storm.chaos import StormResult
    from interlock.lab.storm.director import Progress
    from interlock.lab.storm.history import StormHistory

WORST = 10  # violations that are shown


def chaos(options: Namespace, output: Output) -> int:
    """Let a storm take place, and say what came of it."""
    from interlock.lab.status_line import StatusLine
    from interlock.lab.storm.chaos import chaos as played
    from interlock.lab.storm.director import Storm

    status = StatusLine(output)

    def watch(progress: Progress) -> None:
        told = f"{progress.grants} grants, {progress.faults} faults; the last: {progress.last}"
        if output.drawable:
            status.show(f"{options.kind}: {told}")
        elif not output.json:
            pause = progress.pause
            again = "nobody got on again" if pause is None else f"all on after {duration(pause)}"
            output.line(f"{told}, {again}")

    storm = Storm(
        seed=options.seed, seconds=options.seconds, synchronizer=options.synchronizer, watching=watch
    )
    if not output.json:
        output.line(
            f"{options.kind}: {duration(options.seconds)} of faults, seed {options.seed}; Ctrl-C ends it"
        )
    status.show(f"{options.kind}: the servers are being started")
    try:
        result = played(options.kind, storm, keep=bool(options.report))
    finally:
        status.wipe()
    _tell(result, output)
    if result.history is not None:
        _keep(result, result.history, options, output)
    return result.code


def _tell(result: StormResult, output: Output) -> None:
    if output.json:
        output.document(result.pack())
        return
    if result.skipped:
        output.line(f"{output.paint('skipped', 'yellow')}: {result.skipped}")
        return
    if result.failure:
        output.line(f"{output.paint('broke off', 'yellow')}: {result.failure}")
    if result.verdict is not None:
        numbers = result.verdict.numbers
        output.line("")
        for name, value in numbers.items():
            output.line(f"{name:<26} {value:>10g}")
        output.line("")
        for violation in result.verdict.violations[:WORST]:
            output.line(output.paint(str(violation), "red"))
        clean = not result.verdict.violations
        told = "nothing happened that must never happen" if clean else "THIS MUST NEVER HAPPEN"
        output.line(output.paint(told, "green" if clean else "red"))
    output.line(f"again: {result.command}")


def _keep(result: StormResult, history: StormHistory, options: Namespace, output: Output) -> None:
    """Write the page, or only the history that shows what went wrong."""
    from interlock.lab.storm.chaos import keep_history
    from interlock.lab.storm.report import write_page

    try:
        if options.report:
            path = Path(options.report)
            write_page(path, result, history)
            kept = path.with_suffix(".jsonl")
        else:
            kept = keep_history(history, Path())
    except OSError as error:
        output.error(f"the history cannot be written: {error.strerror}", exit_codes.UNWRITABLE)
        return
    if not output.json:
        output.line(f"the history is in {kept}; `interlock lab replay {kept}` judges it again")


def replay(options: Namespace, output: Output) -> int:
    """Judge the history of a storm again."""
    from interlock.lab.storm.chaos import StormResult
    from interlock.lab.storm.director import Storm
    from interlock.lab.storm.history import read_storm
    from interlock.lab.storm.report import picture, write_page
    from interlock.lab.storm.resources import SYNCHRONIZERS, Synchronizer

    history = read_storm(Path(options.file))
    synchronizer: Synchronizer = "lock"
    for one in SYNCHRONIZERS:
        synchronizer = one if one == history.synchronizer else synchronizer
    result = StormResult(history.kind, Storm(seed=history.seed, synchronizer=synchronizer), history.judged())
    _tell(result, output)
    try:
        if options.report:
            write_page(Path(options.report), result, history)
        if options.figure:
            Path(options.figure).write_text(picture(history), encoding="utf-8")
    except OSError as error:
        output.error(f"{error.filename} cannot be written: {error.strerror}", exit_codes.UNWRITABLE)
    return result.code
