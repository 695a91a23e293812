"""The middlewares for ASGI and WSGI, and the headers that carry a token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

import interlock
from interlock import guards

Answer = tuple[int, Any]
Ask = Callable[..., Answer]


def asgi(url: str, required: bool, requests: list[dict[str, str]], kind: str = "http") -> list[Answer]:
    """The answers of an application behind the middleware; it answers 200 with what it was handed."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = json.dumps(scope.get("interlock")).encode()
        if kind == "websocket":
            await send({"type": "websocket.accept"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async def main() -> list[Answer]:
        answers: list[Answer] = []
        async with interlock.aio.connect(url) as client:
            fence = guards.http.FenceASGI(app, client, required=required)
            for headers in requests:
                sent: list[Any] = []

                async def send(message: Any, sent: list[Any] = sent) -> None:
                    sent.append(message)

                async def receive() -> Any:
                    return {"type": "http.request"}

                pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
                await fence({"type": kind, "headers": pairs}, receive, send)
                if kind == "websocket":
                    answers.append((sent[0].get("code", 101), None))
                else:
                    answers.append((sent[0]["status"], json.loads(sent[1]["body"])))
        return answers

    return asyncio.run(main())


def wsgi(url: str, required: bool, requests: list[dict[str, str]]) -> list[Answer]:
    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [json.dumps(environ.get("interlock")).encode()]

    answers: list[Answer] = []
    with interlock.connect(url) as client:
        fence = guards.http.FenceWSGI(app, client, required=required)
        for headers in requests:
            statuses: list[str] = []
            environ = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
            body = b"".join(fence(environ, lambda status, headers, seen=statuses: seen.append(status)))
            answers.append((int(statuses[0].split()[0]), json.loads(body)))
    return answers


@pytest.fixture(params=[asgi, wsgi], ids=["asgi", "wsgi"])
def answers(request: pytest.FixtureRequest) -> Callable[..., list[Answer]]:
    url = f"memory://{uuid4().hex}"
    return lambda *requests, required=False: request.param(url, required, list(requests))


def test_a_stale_token_is_answered_with_409_and_both_tokens(answers: Callable[..., list[Answer]]) -> None:
    first, second, again, late, bare = answers(
        guards.http.headers("report", 33),
        guards.http.headers("report", 34),
        guards.http.headers("report", 34),
        guards.http.headers("report", 33),
        {},
    )
    assert [first, second, again] == [(200, ["report", 33]), (200, ["report", 34]), (200, ["report", 34])]
    assert late[0] == 409
    assert (late[1]["resource"], late[1]["token"], late[1]["accepted"]) == ("report", 33, 34)
    assert "stale" in late[1]["error"]
    assert bare == (200, None)


def test_names_of_any_kind_cross_the_wire(answers: Callable[..., list[Answer]]) -> None:
    names = ["a b", "ünïcödé/%41", "a,b;c=d", "{x}"]
    sent = [guards.http.headers(name, 33) for name in names]
    assert all(value.isascii() and "\n" not in value for headers in sent for value in headers.values())
    assert answers(*sent) == [(200, [name, 33]) for name in names]


@pytest.mark.parametrize(
    "headers",
    [
        {"Interlock-Resource": "report"},
        {"Interlock-Token": "33"},
        {"Interlock-Resource": "report", "Interlock-Token": "x"},
        {"Interlock-Resource": "report", "Interlock-Token": "-1"},
        {"Interlock-Resource": "report", "Interlock-Token": "9" * 30},
        {"Interlock-Resource": "", "Interlock-Token": "33"},
        {"Interlock-Resource": "%00", "Interlock-Token": "33"},
        {"Interlock-Resource": "%ff", "Interlock-Token": "33"},
    ],
)
def test_broken_headers_are_answered_with_400(
    answers: Callable[..., list[Answer]], headers: dict[str, str]
) -> None:
    ((status, body),) = answers(headers)
    assert status == 400
    assert body["error"]


def test_required_headers_are_required(answers: Callable[..., list[Answer]]) -> None:
    missing, there = answers({}, guards.http.headers("report", 33), required=True)
    assert missing[0] == 400
    assert there[0] == 200


def test_websockets_are_refused_and_other_scopes_pass() -> None:
    url = f"memory://{uuid4().hex}"
    requests = [guards.http.headers("report", 34), guards.http.headers("report", 33)]
    assert asgi(url, False, requests, "websocket") == [(101, None), (4409, None)]


def test_each_middleware_wants_its_own_kind_of_client() -> None:
    with interlock.connect("memory://") as client:
        with pytest.raises(TypeError, match="event loop"):
            guards.http.FenceASGI(None, client)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="FenceASGI"):
        guards.http.FenceWSGI(None, interlock.aio.connect("memory://"))  # type: ignore[arg-type]


def test_the_headers_of_a_lease_are_those_of_a_held_one() -> None:
    with interlock.connect("memory://") as client:
        with client.lock("report") as lease:
            sent = guards.http.headers(lease)
            assert sent == {"Interlock-Resource": "report", "Interlock-Token": str(lease.token)}
        with pytest.raises(interlock.NotHeld):
            guards.http.headers(lease)


def test_a_store_that_does_not_answer_is_503() -> None:
    class Gone:
        def accept(self, token: int) -> int:
            raise interlock.StoreUnavailable("no answer")

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        raise AssertionError("the application must not run")

    with interlock.connect("memory://") as client:
        fence = guards.http.FenceWSGI(app, client)
        fence._client = type("Client", (), {"guard": lambda self, name: Gone()})()
        statuses: list[str] = []
        environ = {"HTTP_INTERLOCK_RESOURCE": "report", "HTTP_INTERLOCK_TOKEN": "33"}
        list(fence(environ, lambda status, headers: statuses.append(status)))
    assert statuses == ["503 Service Unavailable"]
