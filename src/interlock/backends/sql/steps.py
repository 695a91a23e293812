"""The steps: what the base asks of a database. Each is a name, plain arguments, and rows, and is one atomic
operation.

Arguments and results are str, int, float, bool and None; instants never cross the interface, only seconds.
"Now" is the clock of the server, read after the step has the lock on its resource. `_core.admission` has the
rule that claims follow. `sqlite.tables` has the steps in Python, and is the reference: a dialect on a server
may port it literally, loop by loop, into programs of that server.

**Bells.** `bell` is the address at which a waiter is rung: that of the asking store's subscription, or '' if
the store does not listen. A step that changes the standing of somebody else's claim rings the bell in its row
with the message `c<id> <token>`: the token if it was admitted (its owner then looks for its row with `find`
and need not claim again), or 0 if it must ask again. A message is no proof: anybody may send one. Where the
bell in the row is the asking store's own, the step does not ring: it returns the message in its column
`messages`, one message a line, and `_run` of the store delivers it within the process. `messages` is '' or
None if there is none. A step rings after its commit, or so that the message cannot arrive before it. On
SQLite, messages name a claim without a token, all of them are collected in the transaction, and the column is
always None.

**Tokens.** Some steps are told the `token` of the claim, by which its row is found without a search among all
that stand there; 0 if the caller does not know it. A token that is wrong costs a search: `id` decides.
(`find` returns nothing then, and its caller claims.)

**Pinned rows.** A guard (`guards.sql`) may have locked a claim's row in a user's open transaction. Such a row
still stands: no step removes it, waits for it, or admits anybody as if it were gone. `claim` answers busy
with a retry of at most 0.05 s then. (There are none on SQLite, whose transactions lock the whole file.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

Rows: TypeAlias = Sequence[Sequence[Any]]

REMEMBERED_S = 60.0
"""Seconds for which an eviction or a deleted register is remembered at least."""

CLAIM = "claim"
"""Enters a claim, or repeats one that stands.

Arguments: resource, id, ttl, permits, capacity, queued, place_ttl, block, bell, note, who. `block` is 1
unless `Traits.blocks`. Rows: one, (answer, token, ahead, retry, reason, messages, holder id, holder token,
holder permits, holder age, holder lapses in, holder note, holder who). `answer` is one of these; columns that
it does not mention are None:

- `g`: granted, with `token`. The claim lapses in at least ttl seconds.
- `b`: busy. `token` is that of its place (None if it has none, because it is not queued), `ahead` counts the
  live claims ahead, `retry` is the number of seconds until a claim lapses that it must watch
  (`admission.retry_after`), and the holder columns describe the first claim of the queue.
- `e`: evicted, for `reason`.
- `m`: live claims have another capacity, which stands in `ahead`.
"""

RELEASE = "release"
"""Removes a claim, and admits and rings those that this lets in; nudges those who watched it.

Arguments: resource, id, linger, bell, late, token. If `late`, a request of this claim was not answered and
may arrive after this one: when the claim does not stand, the step leaves a mark for 60 seconds, so that a
late claim of this id is answered `e` and never enters. Rows: one, (stood, messages).
"""

RENEW = "renew"
"""Prolongs claims; shrinks them and changes their notes where asked.

Arguments: items, bell. `items` is a sequence of (resource, id, ttl, note or None, permits or None, token,
waiting). An item that is not `waiting` is a holder's: a claim that stands there but only waits is answered
`x`. On servers, if a claim is `waiting` and stands, a message for it is returned in three cases: with its
token if it is in; with 0 if it was rung and has not asked since, or if `admission.asks_at_renewal` says so of
the rows that stand, lapsed or not. Its own client gets the message, whatever bell is in the row. Rows: one
for each item, in order, (answer, reason, messages): `r` renewed, `e` evicted for `reason`, `x` gone, `n` no
answer for this one (its row is pinned in a way that stops renewals).
"""

EVICT = "evict"
"""Marks one claim, or all holders if `id` is None, as evicted for at least `remembered` seconds and for their
own ttl; lets others in.

Arguments: resource, id or None, reason, remembered, call. It rings every bell, also our own. Rows: one for
each victim in the order of the queue, as they stood before: the columns of `queue`, then whether it was in.

`call` is the id of this eviction. On servers its answer is kept under that id for `remembered` seconds, also
where it met nobody: an eviction that is sent again, or whose first copy arrives late, gets that answer and
does nothing to those who hold the resource by then.
"""

QUEUE = "queue"
"""Reads the live claims of a resource in the order of their tokens.

Arguments: resource, limit or None. Rows: (token, id, permits, capacity, age, lapses in, note, who). Age
counts from the admission, or for a waiter from its arrival.
"""

NAMES = "names"
"""Reads the names of resources with live claims that begin with `prefix` and are greater than `after`, sorted
by code points.

Arguments: prefix, after, limit. Rows: (name,).
"""

READ = "read"
"""Reads a register. Arguments: name. Rows: (value, version), or none if it does not exist."""

WRITE = "write"
"""Writes a register if its version is still `version` (0: it does not exist), and rings those who watch it
with `r<name>`.

Arguments: name, version, value or None, id, bell, remembered. A value of None deletes it: its version can
still be read for `remembered` seconds. Watchers with our own `bell` are not rung: the base wakes them. If
`id` wrote the present version, that is the answer. Rows: (value, version) of what was written; none if the
version differs.
"""

FIND = "find"
"""Looks for a claim by its id, for `wait`, and writes `bell` into its row unless it is ''.

Arguments: resource, id, bell, token. Rows: (state, rung, token, lapses in), or none if no such claim stands:
`state` 0 waits, 1 is in; `rung` if something has changed for it since it was last answered.
"""

WATCH = "watch"
"""Has a bell rung at changes of a queue (`q`) or a register (`r`), for so many seconds, with the message
`q<resource>` or `r<name>`.

Arguments: kind, name, bell, seconds. Rows: none.
"""

SWEEP = "sweep"
"""Removes a slice of what has lapsed where nobody looks any more: claims after a row, and old registers and
bells.

Arguments: resource, token, slice. The slice begins after (resource, token) in the order of the primary key
and has so many rows. Rows: one, (gone, last resource or None at the end of the table, last token).
"""

EXAMINE = "examine"
"""Reads how the server is set up; changes nothing.

Arguments: question, one of the dialect's `questions`. Rows: any number, (name, value), both texts. A setting
that this server does not know, or does not tell, has no row.
"""

ALL = (CLAIM, RELEASE, RENEW, EVICT, QUEUE, NAMES, READ, WRITE, FIND, WATCH, SWEEP)
"""The steps that every database has; a server has `examine` as well."""

REPEATABLE = frozenset((*ALL, EXAMINE)) - {RELEASE, WRITE}
"""The steps that may be sent again after a lost reply, since the second answer is that of the first.

That of a release could not tell who removed the claim. That of a write says only that the version differs,
once another has written over it: the core, which repeats a write itself, must know that it was sent before
(`Cell._write`).
"""

MESSAGES = {CLAIM: 5, RELEASE: 1, RENEW: 2}
"""Which column of a step is `messages`."""

WAITS, IN = 0, 1
"""The states that `find` reports."""
