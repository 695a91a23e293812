"""The embedded store: locks for the processes of one machine, in one SQLite file, with nothing to run.

One request, from top to bottom: `store` (the quick path of claim and release, and how a step is run) ->
`file.database` (the connection, retries, fork) -> `tables` (the steps of `interlock.backends.sql.steps`, and
their SQL). The rest of the `Store` interface is that of all SQL stores, `interlock.backends.sql.store`. Under
asyncio, `async_store` runs the same on a thread beside the event loop. Beside it, `notifier` and `doorbell`
end waits.
"""

from interlock.backends.sql.sqlite.open import open_store
from interlock.backends.sql.sqlite.store import TRAITS, SqliteStore

__all__ = ["TRAITS", "SqliteStore", "open_store"]
