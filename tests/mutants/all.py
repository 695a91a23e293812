"""Every mutant there is."""

from __future__ import annotations

from tests.mutants import core, meetings, sqlite

MUTANTS = [*core.MUTANTS, *meetings.MUTANTS, *sqlite.MUTANTS]
