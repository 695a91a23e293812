"""What the SQL stores share: everything that does not depend on which database runs the steps.

One request, from top to bottom: `store` (the `Store` interface) -> `runner` (a connection, the deadline, retries) -> a dialect's `Link`, which
runs one *step*: a named operation with plain arguments that returns rows, atomically, in one round trip where the database allows it.
`steps` names the steps with their arguments and rows, and `dialect` is the interface that a database implements.
Beside them, `listener` receives wake-ups, `pool` keeps connections, `keeper` gives the keeper a connection of its own, and `assembly` puts
a store together for threads or for asyncio.
"""
