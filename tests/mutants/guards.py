"""Deliberate bugs in the guards, and where guards meet other parts."""

from __future__ import annotations

from tests.mutants.mutant import Code, Mutant, Tests, Text, mutant

COHORTS = "_core/cohort.py"
CLAIM_SQL = "guards/sql/claim.sql"


def absolute(names: str) -> Tests:
    return Tests("tests/guards/test_absolute.py", f"{names} and postgresql")


MUTANTS: list[Mutant] = [
    mutant(
        "a part of a guarded lease is given back",
        "others are let in while the transaction of the guard is open",
        Code("_core/lease.py", "Lease._pin", "self._pinned = True", "self._pinned = False"),
        tests=absolute("(part_of_a_guarded or becomes_a_read)"),
    ),
    mutant(
        "a guarded write goes through the retries of the user's Redis client",
        "a write whose reply is lost is done twice",
        Code(
            "guards/redis.py",
            "_Guard._once",
            "pool = client.connection_pool",
            "return await self._answer(client.execute_command(*request))",
        ),
        tests=Tests("tests/guards/test_redis.py", "not_sent_again and pool"),
    ),
    mutant(
        "a guarded write on a Redis Cluster names no node, so that the client repeats it",
        "a write whose reply is lost is done twice",
        Code(
            "guards/redis.py",
            "_Guard._once",
            "return await self._answer(client.execute_command(*request, target_nodes=node))",
            "return await self._answer(client.execute_command(*request))",
        ),
        tests=Tests("tests/guards/test_redis.py", "not_sent_again_to_a_cluster"),
    ),
    mutant(
        "a guarded lease is inherited by a waiter that comes later",
        "the heir reads before the transaction of the guarded lease is committed, and an update is lost",
        Code(COHORTS, "Cohorts.withhold", "del self.passable[resource]", "pass"),
        tests=absolute("same_client"),
    ),
    mutant(
        "a number alone is looked for among the tokens that were reserved with a grant",
        "a holder that has released passes the guard while an heir of its client holds the same row",
        Text(
            CLAIM_SQL,
            "'UTF8') and state = 1\n  and (position(:signed in note) = 1",
            "'UTF8') and state = 1\n  and (position(:signed in note) = 1 or token <= :token",
        ),
        tests=absolute("heir_of_its_client"),
    ),
    mutant(
        "on MySQL a guard looks for its claim among all rows of the resource",
        "nobody can join the queue or lock a name beside it until the transaction ends, and the holder's renewals stand behind them",
        Text(
            CLAIM_SQL,
            "where resource = unhex(:resource) and token = :row and id = unhex(:id)",
            "where resource = unhex(:resource) and token <= :row and id = unhex(:id)",
        ),
        tests=Tests("tests/guards/test_absolute.py", "no_gap"),
    ),
    mutant(
        "whoever may read a guarded file may open the file with its token",
        "a user with no right to write locks it, and nobody can write under the guard any more",
        Code(
            "guards/file.py",
            "_opened_beside",
            "writers = (os.fstat(made).st_mode if mode is None else wanted) & 18",
            "writers = 18",
        ),
        tests=Tests("tests/guards/test_file.py", "only_read"),
    ),
    mutant(
        "the middleware for web services accepts tokens that no store can have granted",
        "one request with a huge token, and every holder after it is refused for ever",
        Code(
            "guards/http.py",
            "_Fence._presented",
            ("if self._ahead is not None and found[1] > (time.time() + self._ahead) * 1000000.0:\n    ..."),
            "if False:\n    ...",
        ),
        tests=Tests("tests/guards/test_http.py", "huge"),
    ),
    mutant(
        "the middleware for web services takes the raw bytes of a name as a server has read them",
        "a service that does not percent-encode its names passes with stale tokens, under another name",
        Code(
            "guards/http.py",
            "_Fence._read",
            "if not resource.isascii():\n    ...",
            "if False:\n    ...",
        ),
        tests=Tests("tests/guards/test_http.py", "raw_name"),
    ),
    mutant(
        "client.guard accepts leases that have ended",
        "a holder that was evicted is let through, until the next one comes to the guard",
        Code("_core/presented.py", "presented", "lease.check()", "pass"),
        tests=Tests("tests/conformance/test_memory.py", "TestGuardsSync and not_held"),
    ),
    mutant(
        "the guard of a file follows a symbolic link in the place of the file with its token",
        "root writes to a file that another user has chosen",
        Code("guards/file.py", "_opened", "os.open(path, flags | AS_IT_IS)", "os.open(path, flags)"),
        tests=Tests("tests/guards/test_file.py", "symbolic_link_is"),
    ),
]
