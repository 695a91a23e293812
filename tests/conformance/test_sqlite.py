"""The embedded store keeps every promise of the port, and the clients on it theirs."""

from __future__ import annotations

import atexit
import shutil
from tempfile import mkdtemp
from uuid import uuid4

from interlock.testing.conformance import StoreFactory, suites

_FOLDER = mkdtemp(prefix="interlock-conformance-")
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)

globals().update(suites(StoreFactory(lambda: f"sqlite:///{_FOLDER}/{uuid4().hex}.db")))
