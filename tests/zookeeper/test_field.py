"""Problems that users of other locks report, and what interlock does instead, on ZooKeeper."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.testing.conformance import suites
from tests.field.sentences import FIELD
from tests.zookeeper.stores import KIND

pytestmark = pytest.mark.soak  # minutes, and most of it is about what all stores share


_made: dict[str, Any] = suites(KIND, FIELD)
for _losing in ("TestLosingSync", "TestLosingAsync"):
    # A claim lapses with its session alone; `test_sessions` has what that means for a renewal.
    _made[_losing].test_04_a_renewal_after_another_took_and_released_it_re_creates_nothing = None
globals().update(_made)
