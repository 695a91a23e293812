"""A key that another program keeps under the name of a lock: told as such, never shown, removed only when asked twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from interlock.testing.servers.redis import running
from tests.cli.program import Program

redis = pytest.importorskip("redis")
pytestmark = pytest.mark.server

SECRET = '{"user": 42, "csrf": "s3cret"}'
EVICT = ["evict", "session:42", "--reason", "typo"]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running() as server:
        yield server.url()


@pytest.fixture
def keys(server: str, program: Program) -> Iterator[Any]:
    """The server's keys, as other programs see them; `program` works on that server."""
    program.url = server
    with redis.Redis.from_url(server.partition("?")[0], decode_responses=True) as client:
        client.flushall()
        yield client


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "session:42"],
        ["inspect", "--json", "session:42"],
        ["run", "-n", "session:42", "--", "true"],
    ],
)
def test_its_value_is_shown_to_nobody(program: Program, keys: Any, words: list[str]) -> None:
    keys.set("session:42", SECRET)
    told = program.call(*words)
    assert "s3cret" not in told.stdout + told.stderr
    assert "another program" in told.stdout + told.stderr or json.loads(told.stdout)["holders"][0]["foreign"]


def test_it_is_told_as_a_key_that_never_lapses(program: Program, keys: Any) -> None:
    keys.set("session:42", SECRET)
    told = program.call("inspect", "session:42").stdout.splitlines()
    assert [line.split("  ") for line in told[1:]] == [
        ["", "held", "a key of another program", "never lapses by itself"]
    ]
    (told_to_programs,) = json.loads(program.call("inspect", "--json", "session:42").stdout)["holders"]
    assert told_to_programs["lapses_in"] is None


@pytest.mark.parametrize("more", [[], ["--no-expiry"], ["--foreign"]], ids=str)
def test_an_eviction_without_both_words_leaves_one_without_an_end_alone(
    program: Program, keys: Any, more: list[str]
) -> None:
    keys.set("session:42", SECRET)
    told = program.call(*EVICT, *more)
    assert told.returncode == 64
    assert told.stderr.count("\n") == 1
    assert "--foreign" in told.stderr
    assert "s3cret" not in told.stderr
    assert keys.get("session:42") == SECRET


def test_an_eviction_with_both_words_removes_it(program: Program, keys: Any) -> None:
    keys.set("session:42", SECRET)
    told = program.call(*EVICT, "--foreign", "--no-expiry")
    assert (told.returncode, told.stdout) == (0, "session:42: evicted a key of another program, held\n")
    assert keys.get("session:42") is None


def test_one_that_lapses_needs_one_word(program: Program, keys: Any) -> None:
    keys.set("session:42", SECRET, px=60_000)
    assert program.call(*EVICT).returncode == 64
    assert program.call(*EVICT, "--foreign").returncode == 0
    assert keys.get("session:42") is None


def test_what_cannot_be_a_lock_is_never_removed(program: Program, keys: Any) -> None:
    keys.rpush("session:42", "s3cret")
    told = program.call(*EVICT, "--foreign", "--no-expiry")
    assert told.returncode in (64, 69)
    assert told.stderr.count("\n") == 1
    assert keys.lrange("session:42", 0, -1) == ["s3cret"]
