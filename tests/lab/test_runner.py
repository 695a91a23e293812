"""Playing a scenario: what is missing is said, and never counts as played."""

from __future__ import annotations

from interlock.lab.runner import played
from interlock.lab.stage import Stage
from interlock.lab.texts import Text
from interlock.testing.servers.process import ServerMissing
from tests.lab.report.samples import Sample


class WithoutItsTool(Sample):
    """Its servers are there, but not a tool that it starts beside them."""

    needs = "none"

    def play(self, stage: Stage) -> None:
        raise ServerMissing("etcdctl", "etcd-client")


def test_a_tool_that_is_missing_is_named_with_its_package() -> None:
    result = played(WithoutItsTool(99, "tool", Text("A tool", "工具")))
    assert result.outcome is None
    assert result.skipped == "etcdctl is not installed: apt-get install etcd-client"
    assert result.missing == "etcd-client"
