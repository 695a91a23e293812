"""Every store with servers keeps the promises of the port that its traits make, and the clients on it theirs.

Redlock runs the suites that depend on the store; with `dev.py test --full`, all of them.
"""

from __future__ import annotations

import pytest

from interlock.testing.conformance import suites
from tests.every_store.deployments import DEPLOYMENTS, deployment_of, faces, on
from tests.full import second_face

for _each in DEPLOYMENTS:
    _made = suites(_each.stores, list(_each.conformance))
    _second = second_face(_made) if _each.few_async else faces(_made, "async")
    globals().update(on(_each, faces(_made, "sync") | _second))


@pytest.fixture(autouse=True)
def prepared_for_conformance(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment_of(request).prepare_conformance(monkeypatch)
