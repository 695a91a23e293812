"""The step that removes lapsed rows where nobody looks any more, a slice at a time: see
`interlock.backends.sql.sweep`.
"""

from __future__ import annotations

from interlock.backends.sql.sqlite.tables.row import SLACK_S
from interlock.backends.sql.sqlite.tables.statements import SWEEP
from interlock.backends.sql.sqlite.tables.transaction import Transaction
from interlock.backends.sql.steps import REMEMBERED_S, Rows

END: tuple[bytes, int] = (b"", 0)  # SQLite orders every blob after every text


def sweep(tx: Transaction, resource: str, token: int, slice: int) -> Rows:
    end = tx.execute(SWEEP["slice_end"], (resource, token, slice - 1)).fetchone()
    last_resource, last_token = end or END
    rows = {"resource": resource, "token": token, "last_resource": last_resource, "last_token": last_token}
    ahead = {"now": tx.now, "ahead": REMEMBERED_S + SLACK_S}
    gone = tx.execute(SWEEP["sweep_claims"], {**rows, "now": tx.now, "slack": SLACK_S}).rowcount
    gone += tx.execute(SWEEP["sweep_registers"], {**ahead, "limit": slice}).rowcount
    tx.execute(SWEEP["sweep_bells"], ahead)
    return [(gone, *(end or (None, 0)))]
