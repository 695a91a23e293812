"""Members of a version with a known bug are named when a client connects to them."""

from __future__ import annotations

import logging
import subprocess
import sys
from argparse import Namespace
from typing import Any

import pytest

import interlock
from interlock import cli
from interlock._support import notices
from interlock.backends.etcd.transport import versions
from interlock.testing.servers.etcd import EtcdCluster


@pytest.mark.parametrize(
    ("version", "number"),
    [
        ("3.3.27", "15247"),
        ("3.4.23", "15247"),
        ("3.5.12", "15247"),
        ("3.4.31", "20418"),
        ("3.4.41", "20418"),
        ("3.5.27", "20418"),
        ("3.6.8", "20418"),
        ("3.4.42", None),
        ("3.5.28", None),
        ("3.6.9", None),
        ("3.7.0-alpha.1", None),
        ("", None),
    ],
)
def test_which_versions_are_named(version: str, number: str | None) -> None:
    notice = versions.notice_for(version)
    assert (notice is None) if number is None else (notice is not None and number in notice)


def test_a_member_with_a_known_bug_is_named_once(
    cluster: EtcdCluster, url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = cluster.leader().status()
    assert status is not None
    monkeypatch.setattr(versions, "_named", {})
    monkeypatch.setattr(notices, "_held_back", None)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "interlock"):
        for _ in range(2):
            with interlock.connect(url) as client, client.lock("x"):
                pass
    named = [record.getMessage() for record in caplog.records if "runs etcd" in record.getMessage()]
    assert len(named) == len(set(named))
    assert bool(named) == (versions.notice_for(status.version) is not None)


def _run(url: str, *options: str) -> str:
    """What `interlock run` writes to standard error."""
    argv = [sys.executable, "-m", "interlock", "--url", url, "run", *options, "x", "--", "true"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_job_of_cron_that_went_well_is_quiet(cluster: EtcdCluster, url: str) -> None:
    """Each run on Debian's etcd printed the warning, and cron sent it by mail. With -v it is still said."""
    assert not _run(url, "--once")
    status = cluster.leader().status()
    assert status is not None
    assert ("runs etcd" in _run(url, "-v")) == (versions.notice_for(status.version) is not None)


@pytest.mark.parametrize(("code", "said"), [(0, ""), (1, ""), (69, "known bug"), (76, "known bug")])
def test_a_command_that_fails_says_what_is_known_of_the_server(
    code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(options: Namespace, console: Any) -> int:
        notices.warn("it has a known bug")
        return code

    monkeypatch.setattr(notices, "_held_back", None)
    monkeypatch.setitem(cli._COMMANDS, "ls", command)
    assert cli.main(["ls"]) == code
    assert (said in capsys.readouterr().err) if said else not capsys.readouterr().err
