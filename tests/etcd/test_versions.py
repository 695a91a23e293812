"""Members of a version with a known bug are named when a client connects to them."""

from __future__ import annotations

import logging

import pytest

import interlock
from interlock.backends.etcd.transport import versions
from tests.etcd.cluster import EtcdCluster


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
    caplog.clear()
    with caplog.at_level(logging.WARNING, "interlock"):
        for _ in range(2):
            with interlock.connect(url) as client, client.lock("x"):
                pass
    named = [record.getMessage() for record in caplog.records if "runs etcd" in record.getMessage()]
    assert len(named) == len(set(named))
    assert bool(named) == (versions.notice_for(status.version) is not None)
