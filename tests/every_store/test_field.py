"""Problems that users of other locks report, and what interlock does instead, on every store with servers.

What the faces do differently, conformance runs in both of them: where the tests take long, the second face is for `dev.py test --full`.
"""

from __future__ import annotations

import pytest

from interlock.testing.conformance import suites
from tests.every_store.deployments import DEPLOYMENTS, faces, on
from tests.field.sentences import FIELD

for _each in DEPLOYMENTS:
    if _each.field:
        _made = suites(_each.stores, FIELD)
        for _suite in _made.values():
            for _test in _each.impossible:
                if hasattr(_suite, _test):
                    setattr(_suite, _test, None)
        for _face in ("sync", "async"):
            _marks = [pytest.mark.soak] if _face in _each.soaked else []
            globals().update(on(_each, faces(_made, _face), *_marks))
