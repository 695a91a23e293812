"""One ensemble for all tests of a worker that do not break it; and readable assertions of the shipped suite."""

from __future__ import annotations

import pytest

from tests.zookeeper.ensemble import Ensemble, steady

pytest.register_assert_rewrite("interlock.testing.conformance")


@pytest.fixture(scope="session")
def ensemble() -> Ensemble:
    return steady()


@pytest.fixture
def url(ensemble: Ensemble) -> str:
    """A place of this test's own."""
    return ensemble.fresh()
