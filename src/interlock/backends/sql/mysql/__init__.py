"""MariaDB and MySQL as a dialect of the SQL stores: claims in tables, one stored procedure for each step.

One step, from top to bottom: `connection` (one connection: sends the call of a procedure, and reads its rows)
-> `calls` (arguments to SQL, results to rows) -> `driver` (PyMySQL or aiomysql). `errors` says what an error
of the server means, `schema` renders and installs `tables.sql` and `procedures.sql`, `address` reads URLs,
`engines` borrows connections of SQLAlchemy, `galera` notices clusters, and `subscription` receives wake-ups.
"""

from interlock.backends.sql.mysql.open import open_client, open_url

__all__ = ["open_client", "open_url"]
