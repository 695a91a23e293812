"""The examples of docs/guide/run-once.md run in the frameworks that they are about."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.testing.servers.process import die_with_parent
from interlock.testing.servers.redis import running
from tests.docs.pages import FENCE
from tests.house.source import ROOT, SRC

PAGE = (ROOT / "docs" / "guide" / "run-once.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.skipif(
    os.name == "nt", reason="the shell and the process pool of these examples are POSIX"
)


def section(title: str, language: str) -> str:
    """The code of one section of the page."""
    text = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return "\n".join(found[2] for found in FENCE.finditer(text) if found[1] == language)


def module(title: str) -> str:
    """The Python of a section, with a client, as a file of a user's program."""
    return f"import interlock\n\nclient = interlock.connect()\n\n{section(title, 'python')}"


def until(fact: Callable[[], Any], patience: float = 60.0) -> Any:
    deadline = time.monotonic() + patience
    while not (found := fact()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return found


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


@pytest.fixture
def env(tmp_path: Path, url: str) -> dict[str, str]:
    """As after an installation: python3 is this one, and the command `interlock` is on the path."""
    tools = {"python3": "", "interlock": "-m interlock "}
    for tool, options in tools.items():
        script = tmp_path / "bin" / tool
        script.parent.mkdir(exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {options}"$@"\n')
        script.chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {**os.environ, "PATH": path, "PYTHONPATH": f"{SRC}{os.pathsep}{tmp_path}", "INTERLOCK_URL": url}


class TestShell:
    """Cron and Kubernetes run a command; here it is run as they would run it."""

    def run(self, command: str | list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, shell=isinstance(command, str), env=env, capture_output=True, text=True, timeout=60
        )

    def command_of_cron(self) -> str:
        setting, line = section("cron", "crontab").strip().splitlines()
        assert setting.startswith("INTERLOCK_URL=")
        return line.split(None, 5)[5]

    def command_of_kubernetes(self) -> list[str]:
        found = re.search(r"^ *command: (\[.*\])$", section("Kubernetes CronJob", "yaml"), re.MULTILINE)
        assert found
        command: list[str] = json.loads(found[1])
        return command

    @pytest.mark.parametrize("which", ["cron", "kubernetes"])
    def test_a_second_start_is_skipped_and_counts_as_done(self, which: str, env: dict[str, str]) -> None:
        command = self.command_of_cron() if which == "cron" else self.command_of_kubernetes()
        first, second = self.run(command, env), self.run(command, env)
        assert (first.returncode, first.stdout) == (
            0,
            "report written\n" if which == "cron" else "cleaned up\n",
        )
        assert (second.returncode, second.stdout) == (0, "")


# Beside the page: a task under a plain lock, whose error must come back with what it knows.
WITHOUT_ONCE = """
@app.task(name="jobs.without_once")
def without_once(shop):
    with client.lock("stock:" + shop, timeout=0):
        pass
"""

SEND = """
from interlock import AcquireTimeout
from jobs import client, count_stock, without_once
with client.lock("stock:ulm"):  # another worker has it
    print(count_stock.delay("ulm").get(timeout=60))
print(count_stock.delay("ulm").get(timeout=60))
client.evict("stock:ulm", reason="its min_hold")
with client.lock("stock:ulm") as lease:
    try:
        without_once.delay("ulm").get(timeout=60)
    except AcquireTimeout as error:
        print("AcquireTimeout", error.holders[0].token == lease.token)
"""


@pytest.mark.server
class TestCelery:
    def test_a_second_message_is_skipped_by_a_real_worker(self, env: dict[str, str], tmp_path: Path) -> None:
        (tmp_path / "jobs.py").write_text(module("Celery") + WITHOUT_ONCE)
        (tmp_path / "send.py").write_text(SEND)
        with running() as server:
            address = f"redis://127.0.0.1:{server.port}"
            env |= {"CELERY_BROKER_URL": f"{address}/0", "CELERY_RESULT_BACKEND": f"{address}/1"}
            env |= {"INTERLOCK_URL": f"{address}/2"}
            with self.worker(tmp_path, env) as log:
                done = subprocess.run(
                    [sys.executable, "send.py"],
                    cwd=tmp_path,
                    env=env,
                    capture_output=True,
                    text=True,
                    timeout=100,
                )
        text = log.read_text()
        assert done.stdout.splitlines() == ["None", "ulm: 42", "AcquireTimeout True"], done.stderr + text
        skipped, succeeded, *_ = [line for line in text.splitlines() if "stock:ulm: " in line]
        assert re.search(
            r"INFO/ForkPoolWorker-1\] stock:ulm: skipped; taken .* pid \d+ .*/send\.py:4\), token \d+$",
            skipped,
        )
        assert re.search(
            r"Task jobs\.count_stock\[.*\] succeeded in .*: <Skipped stock:ulm: taken ", succeeded
        )
        assert "Traceback" not in text.partition("jobs.without_once")[0]
        assert re.search(
            r"raised unexpected: AcquireTimeout\('stock:ulm: not acquired in .*held .* by ", text
        )

    @contextmanager
    def worker(self, folder: Path, env: dict[str, str]) -> Iterator[Path]:
        """A worker with the default pool, forked processes; the file that it writes its log to."""
        log = folder / "worker.log"
        command = [sys.executable, "-m", "celery", "-A", "jobs", "worker", "-c", "1", "-l", "info"]
        quick = ["--without-mingle", "--without-gossip", "--without-heartbeat"]
        with log.open("w") as written:
            worker = subprocess.Popen(
                [*command, *quick],
                cwd=folder,
                env=env,
                stdout=written,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,
            )
        try:
            until(lambda: worker.poll() is not None or " ready." in log.read_text())
            yield log
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)

    def test_a_task_is_skipped_also_where_celery_calls_it_in_place(self, url: str, monkeypatch: Any) -> None:
        monkeypatch.setenv("INTERLOCK_URL", url)
        names: dict[str, Any] = {}
        exec(module("Celery"), names)
        names["app"].conf.task_always_eager = True
        with names["client"], names["client"].lock("stock:ulm"):
            outcome = names["count_stock"].delay("ulm").get()
            assert isinstance(outcome, interlock.Skipped)
            assert not outcome


def test_apscheduler_runs_a_job_in_one_of_two_processes(
    url: str, monkeypatch: Any, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INTERLOCK_URL", url)
    caplog.set_level("INFO")
    names: dict[str, Any] = {}
    exec(module("APScheduler"), names)
    client, scheduler = names["client"], names["scheduler"]
    (job,) = scheduler.get_jobs()

    def start() -> None:
        scheduler.modify_job(job.id, next_run_time=datetime.now(scheduler.timezone))

    def executed() -> int:
        return len([record for record in caplog.records if "executed successfully" in record.getMessage()])

    with client:
        with client.lock("rates"):  # another process has it
            start()
            until(lambda: executed() >= 1)
            assert "rates: skipped; taken " in caplog.text
            assert "fetched" not in capsys.readouterr().out
        seen = executed()
        start()
        until(lambda: executed() > seen)
        scheduler.shutdown()
        assert "fetched" in capsys.readouterr().out
    assert not [record for record in caplog.records if record.levelname not in ("INFO", "DEBUG")]


def test_a_django_command_runs_once(env: dict[str, str], url: str, tmp_path: Path) -> None:
    commands = tmp_path / "shop" / "management" / "commands"
    commands.mkdir(parents=True)
    for package in (commands, commands.parent, commands.parent.parent):
        (package / "__init__.py").touch()
    (commands / "nightly.py").write_text(module("Django command"))
    (tmp_path / "settings.py").write_text('INSTALLED_APPS = ["shop"]\n')

    def nightly() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "django", "nightly", "--settings", "settings", "--shop", "bonn"],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
        )

    with interlock.connect(url) as client, client.lock("nightly:bonn"):
        skipped = nightly()
    assert (skipped.returncode, skipped.stdout, skipped.stderr) == (0, "", "")
    done = nightly()
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed the day of bonn\n", "")
