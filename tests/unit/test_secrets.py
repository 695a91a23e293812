"""A password stays inside: whatever is mistyped in a URL, no error, traceback, repr, log line or output of a command shows it."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock import aio, cli
from interlock.errors import InterlockError
from interlock.urls import named, redacted

MARK = "xqz"
"""Both halves of the secret have it, so that a part of the secret is found as well as the whole."""

ONE, THREE = "127.0.0.1:1", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"  # nobody listens there

STORES = {
    "redis": (ONE, "/0"),
    "rediss": (ONE, "/0"),
    "unix": ("", "/tmp/nobody-listens.sock"),
    "redis+sentinel": (THREE, "/service/0"),
    "rediss+sentinel": (THREE, "/service/0"),
    "redis+cluster": (THREE, ""),
    "rediss+cluster": (THREE, ""),
    "redlock": (THREE, "/0"),
    "redlocks": (THREE, "/0"),
    "postgresql": (ONE, "/locks"),
    "etcd": (THREE, ""),
    "etcds": (THREE, ""),
    "zookeeper": (THREE, "/chroot"),
    "mysql": (ONE, "/locks"),
    "mariadb": (ONE, "/locks"),
    # It has no password, but one may stand in it by mistake.
    "sqlite": ("", "/nowhere/locks.db"),
    # And these are no schemes.
    "redsi": (ONE, "/0"),
    "postgres": (ONE, "/locks"),
    "http": (ONE, "/"),
}

UNESCAPED = [
    *("", "/", "?", "#", "@", "%", "%zz", "%00", "%ff", ":", "[", "]", "&", "=", " ", "\\", ","),
    *("://", "?a=", "?prefix=", "\n", "\0", "€", "\u2100", "\udcff"),
]
"""What a password may have in it that has a meaning in a URL, or that a library refuses."""


def secrets() -> Iterator[str]:
    for odd in UNESCAPED:
        yield f"{MARK}A{odd}B{MARK}"
    # urllib takes what stands in brackets for an address of IPv6, and quotes it if it is none.
    for before, after in (("", ""), ("A", ""), ("", "B"), ("A", "B"), ("v1.", ""), ("[", "]")):
        yield f"{before}[{MARK}]{after}"
    yield f"[v1.{MARK}]"
    yield f"/{MARK}"
    yield f"{MARK}?"
    yield f"12/{MARK}"
    yield f"12@{MARK}/{MARK}"


def mistyped(scheme: str, secret: str) -> Iterator[str]:
    """URLs with this secret: one that is right if the secret needs no escaping, and the ways to spoil it."""
    hosts, path = STORES[scheme]
    login = f"user:{secret}@{hosts}{path}"
    yield f"{scheme}://{login}"
    yield f"{scheme}://:{secret}@{hosts}{path}"
    for between in (":/", ":", "//", "/", ";//", ":\\\\", ": //", ":////", "", " ", "=", ":///"):
        yield f"{scheme}{between}{login}"
    for before in (" ", ":", "/", "x", "url=", "'", '"'):
        yield f"{before}{scheme}://{login}"
    yield login
    yield secret
    yield f"{scheme.upper()}://{login}"
    yield f"{scheme}://{scheme}://{login}"
    # Behind an @ stands a host like any other, and behind a host and its port a path.
    if "@" not in secret and not secret.startswith("12/"):
        yield f"{scheme}://user:{secret}%40{hosts}{path}"
        yield f"{scheme}://user:{secret}{hosts}{path}"
        yield f"{scheme}://user:{secret}"
        yield f"{scheme}://user:{secret}/{path}"
    yield f"{scheme}://user:{secret}@"
    yield f"{scheme}://user:{secret}@@{hosts}{path}"
    yield f"{scheme}://user:{secret}@{hosts}:port{path}"
    yield f"{scheme}://user:{secret}@[{hosts}{path}"
    yield f"{scheme}://user:{secret}@{hosts},{hosts}{path}"
    yield f"{scheme}://{hosts},user:{secret}@{hosts}{path}"
    for more in (
        "/what?",
        "/what/else",
        "#fragment",
        "?colour=red",
        "?prefix",
        "?connect_timeout=soon",
        "?tls=what",
    ):
        yield f"{scheme}://{login}{more}"
    if "&" in secret:  # else it begins another option
        return
    for option in ("password", "sentinel_password", "sslpassword", "sasl_password"):
        yield f"{scheme}://{hosts}{path}?{option}={secret}"
        yield f"{scheme}://{hosts}{path}?{option}={secret}&colour=red"


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error and everything that hangs on it, also what a traceback leaves out."""
    seen: list[BaseException] = []
    rest: list[BaseException | None] = [error]
    while rest:
        one = rest.pop()
        if one is not None and not any(one is other for other in seen):
            seen.append(one)
            rest += [one.__context__, one.__cause__]
    return iter(seen)


def told(error: BaseException) -> str:
    """Everything that a program, a log or a person may be shown of an error."""
    parts = [str(error), repr(error), "".join(traceback.TracebackException.from_exception(error).format())]
    parts += [f"{one!r} {one} {one.args} {vars(one)}" for one in chain(error)]
    # The source lines of a traceback are of this test: they have the word, and no secret.
    return "\n".join(line for part in parts for line in part.splitlines() if "MARK" not in line)


def assert_hidden(text: str, url: str) -> None:
    at = text.casefold().find(MARK)
    assert at < 0, f"{url!r} shows {text[max(0, at - 80) : at + 80]!r}"


@pytest.mark.parametrize("scheme", STORES)
def test_no_mistyped_url_shows_its_password(
    scheme: str, caplog: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.DEBUG)
    faces = cycle((interlock.connect, aio.connect, interlock.connect))
    for secret in secrets():
        for url in mistyped(scheme, secret):
            if url.lower().startswith(("sqlite:///", "unix:////")):  # the rest is a path, and paths are shown
                continue
            connect: Any = next(faces)
            try:
                client = connect(url, connect_timeout=0.2)
            except InterlockError as error:
                assert_hidden(told(error), url)
            except ValueError as error:
                pytest.fail(f"{url!r} raises {error!r}")
            else:
                assert_hidden(repr(client), url)
                assert_hidden(repr(client.lock("x")), url)
            assert_hidden(redacted(url), url)
    assert_hidden(caplog.text, scheme)


def test_no_mistyped_url_of_a_node_of_a_quorum_shows_its_password() -> None:
    for secret in secrets():
        nodes = [f"redis://user:{secret}@127.0.0.1:{port}/0" for port in (1, 2, 3)]
        try:
            client = interlock.connect(nodes)
        except InterlockError as error:
            assert_hidden(told(error), nodes[0])
        else:
            assert_hidden(repr(client), nodes[0])


@pytest.mark.parametrize("scheme", STORES)
def test_no_command_shows_the_password_of_a_mistyped_url(scheme: str, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("INTERLOCK_URL", raising=False)
    urls = [url for odd in ("", "/", "@") for url in mistyped(scheme, f"{MARK}A{odd}B{MARK}")]
    # The others are stores that would have to be reached; the next test does that.
    wrong = [url for url in urls if redacted(url) == "***"]
    for number, url in enumerate(wrong):
        lines = [
            *(
                ["ls", "--url", url],
                ["--json", "ls", f"--url={url}"],
                ["inspect", "--url", url, "x"],
                ["sql", url],
            ),
            *(
                ["run", "--url", url, "x"],
                ["run", f"--url={url}", "x", "true"],
                ["quorum", "--url", url, "status"],
            ),
            *([["ls", "x", url], ["watch", "x", url]] if "@" in url and scheme in url else []),
        ]
        line = lines[number % len(lines)]
        assert cli.main(line) != 0
        said = capsys.readouterr()
        assert_hidden(said.out + said.err, f"{line}")


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    "scheme", [scheme for scheme in STORES if scheme not in ("redsi", "postgres", "http")]
)
def test_a_server_that_cannot_be_reached_shows_no_password(
    scheme: str, asynchronous: bool, caplog: Any
) -> None:
    """Right URLs, with passwords of any kind: what fails is the connection."""
    caplog.set_level(logging.DEBUG)
    hosts, path = STORES[scheme]
    for secret in (f"{MARK}A%2F%25%40B{MARK}", f"{MARK}%E2%82%AC{MARK}", f"{MARK}@{MARK}", f"{MARK}%C3%A9"):
        url = f"{scheme}://user:{secret}@{hosts}{path}"
        try:
            if asynchronous:
                asyncio.run(_try_async(url))
            else:
                with interlock.connect(url, connect_timeout=0.5) as client:
                    client.lock("x").acquire(blocking=False)
        except InterlockError as error:
            assert_hidden(told(error), url)
        assert_hidden(named(url) if scheme != "sqlite" else "", url)
    assert_hidden(caplog.text, scheme)


async def _try_async(url: str) -> None:
    async with aio.connect(url, connect_timeout=0.5) as client:
        await client.lock("x").acquire(blocking=False)


def test_the_error_that_a_caller_was_handling_stays_the_context_of_ours() -> None:
    """Only what our own code caught is cut off."""
    first = KeyError("the caller's own")
    with pytest.raises(InterlockError) as refusal:
        try:
            raise first
        except KeyError:
            interlock.connect("postgresql://u:p%zz@h/db")
    assert refusal.value.__context__ is first
