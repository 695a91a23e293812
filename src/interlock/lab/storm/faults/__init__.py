"""What goes wrong in a storm, by the kind of servers: a deployment, and the faults that it can suffer.

| module | has |
|---|---|
| `fault` | what a fault is, and what is promised while it lasts |
| `clients`, `network` | what goes wrong with every kind: workers, and the ways between them and the servers |
| `redis`, `sentinel`, `cluster`, `redlock`, `etcd`, `zookeeper`, `postgresql`, `mysql`, `sqlite` | one deployment each |

A fault knows its deployment and the crew that it may hit. It knows neither what the workers do nor how they
are judged.
"""  # noqa: E501  (a table)
