"""How fast interlock is, side by side with the bare commands and with peers, in one run.

    python3 dev.py bench                     every question
    python3 dev.py bench pair-sqlite         one of them
    python3 dev.py bench redis-contended     all whose names begin so
    python3 dev.py bench embedded            all of one row of `__main__.STORES`
    python3 dev.py bench --quick             short rounds: do they all work?
    python3 dev.py bench --list

Only ratios count: absolute times differ from run to run and from machine to machine. A question is a list of
cases, the first of which is the limit: what the bare commands cost. Cases are measured in round-robin
rounds; a case's ratio is the median over rounds of case / limit.

A store plugs in with one module that offers `questions() -> list[Question]`, and one row in `__main__.STORES`. The questions
about interlock itself are in `ours`: a module of a new store adds its servers, its bare limit and its peers
(docs/performance.md shows how).
"""
