"""`python3 dev.py demo`: interlock at work on this machine, in a temporary folder, in about 20 seconds.

Several processes contend for a lock and a semaphore; one holder is killed, one is paused past its ttl. The
demo checks what it claims: it exits with 1 if a claim turned out false.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from textwrap import wrap
from types import FrameType
from typing import TextIO, cast

from interlock.lab.demo.pace import FAST, WATCHED, Pace
from interlock.lab.demo.scene import WIDTH
from interlock.lab.demo.screen import Screen, open_screen
from interlock.lab.demo.story import Story
from interlock.lab.demo.verdict import Finding, judged

ENDINGS = ("SIGTERM", "SIGHUP")
NEXT = "Next: README.md has the five-minute start; docs/guide/fencing.md, the ledger."
REPORT = "A claim of this demo is false. Please report it, with the lines above."


def main(argv: list[str] | None = None) -> int:
    """Show the demo; 0 if all it claims was true, 1 if not, 130 if interrupted, 141 if nobody reads on."""
    parser = argparse.ArgumentParser(prog="dev.py demo", description="interlock at work on this machine")
    parser.add_argument("--fast", action="store_true", help="too fast to read: for tests")
    pace = FAST if parser.parse_args(argv).fast else WATCHED
    screen = open_screen(forgiving(sys.stdout))
    try:
        with endings_interrupt():
            return show(pace, screen)
    except KeyboardInterrupt:
        screen.say([("", "\ninterrupted: all workers were ended, and nothing is left behind")])
        return 130
    except BrokenPipeError:  # `| head`: whoever read has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains at its end
        return 141
    finally:
        screen.close()


def forgiving(out: TextIO) -> TextIO:
    """A terminal that lacks a glyph still gets the story."""
    if isinstance(out, TextIOWrapper):
        out.reconfigure(errors="replace")
        return cast(TextIO, out)
    return out


def show(pace: Pace, screen: Screen) -> int:
    folder = Path(tempfile.mkdtemp(prefix="interlock-demo-"))
    try:
        story = Story(folder, pace, screen)
        try:
            evidence = story.tell()
        finally:
            with undisturbed():
                story.close()
    finally:
        remove(folder)
    findings = judged(evidence)
    conclude(findings, screen)
    return 0 if all(finding.holds for finding in findings) else 1


def remove(folder: Path) -> None:
    """Remove the demo's files, also if a worker that is just ending still writes one."""
    end = time.monotonic() + 2.0
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists() or time.monotonic() > end:
            return
        time.sleep(0.01)


def conclude(findings: list[Finding], screen: Screen) -> None:
    """Say what happened, in sentences."""
    screen.say([("", "")])
    screen.say([("bold", "What happened, judged from the ledger's own log and the workers' reports:")])
    for finding in findings:
        mark = ("good", "  true   ") if finding.holds else ("bad", "  FALSE  ")
        lines = [line for part in finding.text.splitlines() for line in wrap(part, WIDTH - 9)]
        for number, line in enumerate(lines):
            screen.say([mark if number == 0 else ("", " " * 9), ("", line)])
    screen.say([("", "")])
    screen.say([("", NEXT)] if all(finding.holds for finding in findings) else [("bad", REPORT)])


@contextmanager
def endings_interrupt() -> Iterator[None]:
    """While this lasts, a signal that would end us ends us as Ctrl-C does: nothing is left behind."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = [
        (getattr(signal, name), signal.signal(getattr(signal, name), interrupt))
        for name in ENDINGS
        if hasattr(signal, name)
    ]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """A second Ctrl-C must not leave half of the workers running."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
