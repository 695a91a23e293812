"""A short storm over an etcd cluster."""

from __future__ import annotations

import pytest

from tests.storm.short_storm import assert_nothing_forbidden

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]


def test_nothing_that_must_never_be_in_a_short_storm() -> None:
    assert_nothing_forbidden("etcd", ttl=0.6, faults=14, grants=100)
