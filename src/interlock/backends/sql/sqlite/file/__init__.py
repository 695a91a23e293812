"""What is SQLite's own: which files carry locks, who may write them, and one connection that is used safely.

`location`, `connection`, `ownership` and `inodes` decide which files are used. `database` runs transactions
on them, one thread at a time (`critical_section`), across forks. `liveness` tells which processes live,
`clock` what time it is for all of them, and `errors` puts SQLite's errors into our words.
"""
