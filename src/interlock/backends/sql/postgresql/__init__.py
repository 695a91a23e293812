"""PostgreSQL: a lease table, one function of the database for each step, and LISTEN/NOTIFY for wake-ups.

`open` makes a store from a URL, a pool of psycopg or an engine of SQLAlchemy. `dialect` implements the
interface of the SQL base: `connection` runs steps on one connection of libpq, for threads and for asyncio,
`user_pools` borrows connections of the user, and `subscription` listens. `schema` renders the SQL files,
`statements` says how each step is sent and its answer read, and `errors` translates SQLSTATEs.
"""

from interlock.backends.sql.postgresql.open import open_client, open_url

__all__ = ["open_client", "open_url"]
