"""The embedded store: locks for the processes of one machine, in one SQLite file, with nothing to run.

One request, from top to bottom: `store` (the port: one transaction, then the rings it caused) -> `file.database` (the
connection, patience, fork) -> `tables` (what the transaction does, and its SQL). Under asyncio, `async_store` runs the
same on a thread beside the event loop. Beside it, `notifier` and `doorbell` end waits. Everything but `tables` is SQLite's own.
"""

from interlock.backends.sql.sqlite.open import open_store
from interlock.backends.sql.sqlite.store import TRAITS, SqliteStore

__all__ = ["TRAITS", "SqliteStore", "open_store"]
