"""Whether this is a full run, with the soaks and searches that take minutes: `python3 dev.py test --full`."""

from __future__ import annotations

import os

FULL = bool(os.environ.get("INTERLOCK_FULL"))
