"""Storms: workers at guarded counters on real servers, while a director breaks these by a seed; then a verdict.

The parts do not know each other:

| part | does |
|---|---|
| `schedule` | generates: which fault comes next, by a seed |
| `workers` | apply: they take locks, count under them, and write down what they did; `naive` has locks of others |
| `faults` | break: the servers of each kind, and what can go wrong with them |
| `verdict` | judges what was written down |

`director` joins them. `deployments` has the kinds of servers by name, `resources` the names that workers use,
and `literature` the failures of the literature, step by step.
"""  # noqa: E501  (a table)
