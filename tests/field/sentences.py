"""The sentences of the field, each a test of its own name, on every store and through both faces.

14 (a Redlock node restarted empty), 15 (a ZooKeeper node of an earlier session) and 16 (a transaction pooler)
are about stores that come later and are tested with them.
"""

from __future__ import annotations

from interlock.testing.conformance import Suite
from tests.field.crowds import Crowds
from tests.field.ends import Ends
from tests.field.killed import Killed
from tests.field.losing import Losing
from tests.field.repeating import Repeating
from tests.field.taking import Taking

FIELD: list[type[Suite]] = [Taking, Losing, Crowds, Ends, Killed, Repeating]
