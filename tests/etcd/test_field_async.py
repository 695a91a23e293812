"""Problems that users of other locks report, and what interlock does instead, on etcd; async."""

from __future__ import annotations

import pytest

from interlock.testing.conformance import suites
from tests.etcd.stores import KIND
from tests.field.sentences import FIELD

pytestmark = pytest.mark.soak  # what the faces do differently, conformance runs in both of them

globals().update({name: suite for name, suite in suites(KIND, FIELD).items() if name.endswith("Async")})
