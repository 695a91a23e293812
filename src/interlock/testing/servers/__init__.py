"""Real servers on throw-away folders and free ports, for tests and demonstrations that break them.

| module | starts |
|---|---|
| `process` | what all have in common: a free port, an end with the harness, freezing, killing, what is missing |
| `redis` | one redis-server; with `tls`, one that speaks TLS |
| `sentinel` | a master, its replicas, and three sentinels |
| `cluster` | a Redis Cluster of three shards |
| `redlock` | several independent redis-servers |
| `etcd`, `zookeeper` | a cluster of three, or of another size |
| `zookeeper_partition` | three ZooKeeper servers that can be cut off from each other |
| `postgresql` | a server, and PgBouncer before it |
| `mysql`, `galera` | a MariaDB server, and a cluster of two |
| `proxy` | a TCP proxy that loses, delays, keeps, stalls and cuts, in each direction |
| `clock` | a redis-server, and any other process, whose wall clock can be moved |
| `small_disk` | a disk that is small enough to be filled |
| `namespaces` | two network namespaces with a link that can be cut |
| `shared` | servers that all workers of one test run share |

Every server is a `ServerProcess`: `start`, `url`, `freeze`, `thaw`, `kill`, `restart`, `close`. A program
that is not installed raises `ServerMissing`, which names its package; a fault that the machine does not
allow raises `FaultUnavailable`. A client library is imported only where a server is asked through it.
"""  # noqa: E501  (a table)
