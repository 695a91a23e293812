"""Every mutant there is."""

from __future__ import annotations

from tests.mutants import core, sqlite

MUTANTS = [*core.MUTANTS, *sqlite.MUTANTS]
