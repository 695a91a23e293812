"""What a deployment needs before each test, and the server of one that a test may break."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.attacks.servers.site import Site
from tests.every_store.deployments import Deployment, deployment_of


@pytest.fixture(autouse=True)
def prepared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment_of(request).prepare(monkeypatch)


class Sites:
    """One server at a time: that of the deployment whose tests run."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._of = ""
        self._site: Site | None = None

    def of(self, deployment: Deployment) -> Site:
        if self._site is None or self._of != deployment.name:
            self.close()
            assert deployment.site is not None
            self._of, self._site = deployment.name, self._open.enter_context(deployment.site())
        return self._site

    def close(self) -> None:
        self._site = None
        self._open.close()


@pytest.fixture(scope="module")
def sites() -> Iterator[Sites]:
    found = Sites()
    yield found
    found.close()


@pytest.fixture
def site(request: pytest.FixtureRequest, sites: Sites) -> Site:
    return sites.of(deployment_of(request))
