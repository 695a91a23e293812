"""Tables that somebody has altered, and sessions that find other functions: two could hold one lock."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from urllib.parse import quote

import pytest

import interlock
from interlock.errors import StoreUnavailable, StoreUnfit
from interlock.testing.servers.postgresql import Server, fresh_schema, running
from tests.patience import until


@pytest.fixture
def schema(server: Server) -> Iterator[str]:
    """A place with the tables in it."""
    schema = fresh_schema()
    with interlock.connect(server.url(schema)) as client, client.lock("x"):
        pass
    server.sql(
        f"create function {schema}.nothing() returns trigger language plpgsql as 'begin return null; end'"
    )
    yield schema
    server.sql(f"drop schema {schema} cascade")


ALTERED = {
    "trigger": "create trigger drops before insert on {}.claim for each row execute function {}.nothing()",
    "trigger of the slots": "create trigger drops before update on {}.slot for each row execute function {}.nothing()",
    "rule": "create rule drops as on insert to {}.claim do instead nothing",
    "rule of registers": "create rule drops as on update to {}.register do instead nothing",
    "not logged": "alter table {}.claim set unlogged",
}


@pytest.mark.parametrize("statement", ALTERED.values(), ids=ALTERED)
def test_a_table_that_drops_what_is_written_is_refused(server: Server, schema: str, statement: str) -> None:
    server.sql(statement.replace("{}", schema))
    with interlock.connect(server.url(schema)) as client:
        with pytest.raises(StoreUnfit, match=r"the table (claim|slot|register) (has the|is not logged)"):
            client.lock("x").acquire(blocking=False)
        with pytest.raises(StoreUnfit):
            client.register("x").update(lambda _: 1)


def test_a_trigger_that_runs_afterwards_does_no_harm(server: Server, schema: str) -> None:
    server.sql(
        f"create trigger audit after insert or update or delete on {schema}.claim for each row execute function {schema}.nothing()"
    )
    with interlock.connect(server.url(schema)) as client, client.lock("x"):
        pass


def test_policies_that_hide_rows_let_no_second_holder_in(server: Server, schema: str) -> None:
    """Each of two users sees the claims of its own only."""
    users = [f"{schema}_{letter}" for letter in "ab"]
    server.sql(f"alter table {schema}.claim add column owner name default current_user")
    try:
        for user in users:
            server.sql(f"create role {user} login")
            server.sql(f"grant usage on schema {schema} to {user}")
            server.sql(f"grant all on all tables in schema {schema} to {user}")
            server.sql(f"grant execute on all functions in schema {schema} to {user}")
        with interlock.connect(server.url(schema, user=users[0])) as early:
            assert early.lock("x").acquire()
            server.sql(f"create policy own on {schema}.claim using (owner = current_user) with check (true)")
            server.sql(f"alter table {schema}.claim enable row level security")
            with interlock.connect(server.url(schema, user=users[1])) as client:
                with pytest.raises(StoreUnfit, match="policies that hide rows"):
                    client.lock("x").acquire(blocking=False)
            with pytest.raises(StoreUnfit, match="row-level security"):  # one that was connected before
                early.lock("y").acquire(blocking=False)
            server.sql(f"alter table {schema}.claim disable row level security")
    finally:
        for user in users:
            server.sql(f"drop owned by {user}")
            server.sql(f"drop role {user}")


FOREIGN = """
create schema {0};
create function {0}.pg_try_advisory_xact_lock(bigint) returns boolean language sql as 'select true';
create function {0}.clock_timestamp() returns timestamptz language sql as $$select timestamptz '2020-01-01'$$;
create function {0}.never(text, text) returns boolean language sql as 'select false';
create operator {0}.= (leftarg = text, rightarg = text, function = {0}.never)
"""


def test_functions_and_operators_of_the_search_path_mean_nothing(server: Server, schema: str) -> None:
    evil = fresh_schema()
    for statement in FOREIGN.format(evil).split(";\n"):
        server.sql(statement)
    path = quote(f"-c search_path={evil},pg_catalog")
    with (
        interlock.connect(server.url(schema)) as client,
        interlock.connect(f"{server.url(schema)}&options={path}") as misled,
    ):
        with client.lock("x") as lease:
            assert misled.lock("x").acquire(blocking=False) is None
        with misled.lock("x") as later:
            assert later.token > lease.token
            assert client.lock("x").acquire(blocking=False) is None
    server.sql(f"drop schema {evil} cascade")


def waits_for(server: Server, standby: str) -> None:
    """From now on commits wait for a standby of this name."""
    server.sql(f"alter system set synchronous_standby_names = '{standby}'")
    server.sql("select pg_reload_conf()")
    until(lambda: server.sql("show synchronous_standby_names") == [(standby,)])


WAITS = "select pid from pg_stat_activity where wait_event = 'SyncRep'"


@pytest.mark.parametrize("what", ["register", "guard", "eviction"])
def test_a_repeated_write_waits_for_the_synchronous_standby_again(what: str) -> None:
    """The first one was committed, and its connection ended while it waited: no standby has it."""
    with running() as server:
        with interlock.connect(server.url()) as client:
            assert client.lock("x", ttl=600, renew=False).acquire()
        waits_for(server, "gone")
        with interlock.connect(server.url()) as client:
            answers: list[object] = []

            def write() -> None:
                try:
                    if what == "register":
                        answers.append(client.register("r").update(lambda _: 1))
                    elif what == "guard":
                        answers.append(client.guard("r").accept(7))
                    else:
                        answers.append(client.evict("x", reason="test"))
                except StoreUnavailable as error:
                    answers.append(error)

            writer = threading.Thread(target=write)
            writer.start()
            until(lambda: server.sql(WAITS))
            ((first,),) = server.sql(WAITS)
            server.sql(f"select pg_terminate_backend({first})")
            until(lambda: [pid for (pid,) in server.sql(WAITS) if pid != first] or answers)
            assert not answers
            waits_for(server, "")
            writer.join()
            assert not isinstance(answers[0], Exception)
