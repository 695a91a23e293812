"""The SQL stores: SQLite, PostgreSQL and MySQL as dialects of one thing, which is a set of steps.

A *step* is a named operation with plain arguments that returns rows, atomically. `steps` names the eleven
steps and is the whole contract between the base and a dialect. `store` is the `Store` interface over them:
what a call asks, what rows mean (`rows`), how a watch waits (`waking`), when lapsed rows are swept (`sweep`).

On SQLite (`sqlite`) a step is Python between statements, inside one transaction on the file. On a server it
is one program of that server, in one round trip where the database allows it. One request there, from top to
bottom: `server_store` -> `requester` (a connection, the deadline, retries) -> a dialect's `Connection`;
`dialect` is the interface that a server's dialect implements. Beside them, `listener` receives wake-ups,
`pool` keeps connections, `keeper` gives the keeper a connection of its own, and `assembly` puts a store
together for threads or for asyncio.
"""
