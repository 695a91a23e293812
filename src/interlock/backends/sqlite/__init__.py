"""The embedded store: locks for the processes of one machine, in one SQLite file, with nothing to run.

One request, from top to bottom: `store` (the port) -> `executor` (which thread) -> `operations` (one transaction,
then the rings) -> `file.database` (the connection, patience, fork) -> `tables` (what the transaction does, and its
SQL). Beside it, `notifier` and `doorbell` end waits. Everything but `tables` is SQLite's own.
"""

from interlock.backends.sqlite.open import open_store
from interlock.backends.sqlite.store import TRAITS, SqliteStore

__all__ = ["TRAITS", "SqliteStore", "open_store"]
