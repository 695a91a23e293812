"""What is done to claims and registers inside a transaction, and the SQL of it.

Nothing here knows `sqlite3`, a file or a connection's settings (a test reads the imports), so that stores on
other SQL databases can share it. `claims` and `registers` are the operations, `queue` is how a queue moves,
`sweep` removes what nobody meets any more; all of them work through a `transaction`.
"""
