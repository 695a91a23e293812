"""The embedded store: locks for the processes of one machine, in one SQLite file, with nothing to run.

One request, from top to bottom: `store` (the port) -> `leaf` (which thread) -> `ledger` (one transaction,
then the rings) -> `database` (the connection, patience, fork) -> `claims`, `queue`, `registers` (what the
transaction does) -> the `.sql` files. Beside it: `listener` and `doorbell` end waits, `sweep` leaves nothing
behind, `place`, `ownership` and `file` refuse what cannot carry locks, `inodes` notices files that were removed,
`presence` knows who lives, `guard` lets one thread in at a time.
"""

from interlock.backends.sqlite.open import open_store
from interlock.backends.sqlite.store import TRAITS, SqliteStore

__all__ = ["TRAITS", "SqliteStore", "open_store"]
