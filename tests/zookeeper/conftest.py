"""One ensemble for all tests of a run that do not break it; and readable assertions of the shipped suite."""

from __future__ import annotations

import pytest

from interlock._core import timing
from interlock.testing.lag import stretched
from tests.zookeeper.ensemble import Servers
from tests.zookeeper.shared import steady

pytest.register_assert_rewrite("interlock.testing.conformance")


@pytest.fixture(scope="session")
def ensemble() -> Servers:
    return steady()


@pytest.fixture
def url(ensemble: Servers) -> str:
    """A place of this test's own."""
    return ensemble.fresh()


@pytest.fixture(autouse=True)
def patience_for_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A try without waiting gives the servers 0.15 s. On a busy machine three JVMs may need longer for one write, and that is not what is tested."""
    monkeypatch.setattr(timing, "GRACE", stretched(timing.GRACE))
