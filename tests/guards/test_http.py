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
from interlock._core.high_water_mark import HighWaterMark

Answer = tuple[int, Any]
Ask = Callable[..., Answer]


def asgi(
    url: str, required: bool, requests: list[dict[str, str]], kind: str = "http", **settings: Any
) -> list[Answer]:
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
            fence = guards.http.FenceASGI(app, client, required=required, **settings)
            for headers in requests:
                sent: list[Any] = []

                async def send(message: Any, sent: list[Any] = sent) -> None:
                    sent.append(message)

                async def receive() -> Any:
                    return {"type": "http.request"}

                pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
                await fence({"type": kind, "headers": pairs}, receive, send)
                if kind == "websocket":
                    answers.append((sent[0].get("code", 101), sent[0].get("reason")))
                else:
                    answers.append((sent[0]["status"], json.loads(sent[1]["body"])))
        return answers

    return asyncio.run(main())


def wsgi(url: str, required: bool, requests: list[dict[str, str]], **settings: Any) -> list[Answer]:
    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [json.dumps(environ.get("interlock")).encode()]

    answers: list[Answer] = []
    with interlock.connect(url) as client:
        fence = guards.http.FenceWSGI(app, client, required=required, **settings)
        for headers in requests:
            statuses: list[str] = []
            environ = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
            body = b"".join(fence(environ, lambda status, headers, seen=statuses: seen.append(status)))
            answers.append((int(statuses[0].split()[0]), json.loads(body)))
    return answers


@pytest.fixture(params=[asgi, wsgi], ids=["asgi", "wsgi"])
def answers(request: pytest.FixtureRequest) -> Callable[..., list[Answer]]:
    url = f"memory://{uuid4().hex}"
    return lambda *requests, required=False, **settings: request.param(
        url, required, list(requests), **settings
    )


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
        # Servers read these bytes as Latin-1, and hand over the name of another resource, whose tokens are low.
        {"Interlock-Resource": "café", "Interlock-Token": "33"},
        {"Interlock-Resource": "café".encode().decode("latin-1"), "Interlock-Token": "33"},
        {"Interlock-Resource": "report", "Interlock-Token": "\u0663"},
        {"Interlock-Resource": "report", "Interlock-Token": "1" * 5000},
        # A server of WSGI, or a proxy, joins the values of a header that was sent twice.
        {"Interlock-Resource": "report,report", "Interlock-Token": "33"},
        {"Interlock-Resource": "report, report", "Interlock-Token": "33"},
        {"Interlock-Resource": "report", "Interlock-Token": "33,33"},
    ],
)
def test_broken_headers_are_answered_with_400(
    answers: Callable[..., list[Answer]], headers: dict[str, str]
) -> None:
    ((status, body),) = answers(headers)
    assert status == 400
    assert body["error"]
    assert "sys.set_int_max_str_digits" not in body["error"]


def test_a_stale_token_under_the_raw_name_of_its_resource_is_not_accepted(
    answers: Callable[..., list[Answer]],
) -> None:
    stale = {"Interlock-Resource": "café", "Interlock-Token": "33"}
    encoded, raw = answers(guards.http.headers("café", 34), stale)
    assert (encoded, raw[0]) == ((200, ["café", 34]), 400)
    assert "percent-encoded" in raw[1]["error"]


def test_one_huge_token_does_not_lock_everybody_out(answers: Callable[..., list[Answer]]) -> None:
    with interlock.connect("memory://") as client, client.lock("report") as lease:
        held = guards.http.headers(lease)
    huge, later, honest = answers(
        guards.http.headers("report", 2**63 - 1),
        guards.http.headers("report", int(held["Interlock-Token"]) + 2 * 3600 * 10**6),
        held,
    )
    assert (huge[0], later[0], honest[0]) == (400, 400, 200)
    assert "clock" in huge[1]["error"]


def test_every_token_passes_if_no_clock_is_asked(answers: Callable[..., list[Answer]]) -> None:
    assert answers(guards.http.headers("report", 2**63 - 1), ahead=None)[0][0] == 200


KEY = "0123456789abcdef"


def test_with_a_key_only_signed_headers_count(answers: Callable[..., list[Answer]]) -> None:
    signed = guards.http.headers("report", 34, key=KEY)
    got = answers(
        guards.http.headers("report", 99),
        guards.http.headers("report", 99, key="another key of a stranger"),
        {**guards.http.headers("report", 99), "Interlock-Signature": signed["Interlock-Signature"]},
        {**guards.http.headers("other", 34), "Interlock-Signature": signed["Interlock-Signature"]},
        {**signed, "Interlock-Signature": "ÿ"},
        signed,
        guards.http.headers("report", 33, key=KEY.encode()),
        {},
        key=KEY,
    )
    assert [status for status, _ in got] == [403, 403, 403, 403, 403, 200, 409, 200]


def test_a_short_key_is_refused() -> None:
    with pytest.raises(interlock.InvalidSetting, match="16 bytes"):
        guards.http.headers("report", 33, key="short")


def test_marks_of_names_that_are_no_longer_used_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("interlock.guards.http.time.monotonic", lambda: clock[0])

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        return []

    with interlock.connect("memory://") as client:
        fence = guards.http.FenceWSGI(app, client, remember=60.0)

        def show(name: str, token: int) -> None:
            headers = guards.http.headers(name, token)
            fence(
                {f"HTTP_{key.upper().replace('-', '_')}": value for key, value in headers.items()},
                lambda *_: None,
            )

        for name in ("a", "b", "c"):
            show(name, 33)
        client.guard("b").accept(34)  # by another process, which remembers it on its own account
        clock[0] = 59.0
        show("c", 33)
        assert client.guard("a").highest() == 33
        clock[0] = 61.0
        show("d", 33)
        assert [client.guard(name).highest() for name in "abcd"] == [0, 34, 33, 33]


def test_required_headers_are_required(answers: Callable[..., list[Answer]]) -> None:
    missing, there = answers({}, guards.http.headers("report", 33), required=True)
    assert missing[0] == 400
    assert there[0] == 200


def test_websockets_are_refused_and_other_scopes_pass() -> None:
    url = f"memory://{uuid4().hex}"
    requests = [guards.http.headers("report", 34), guards.http.headers("report", 33)]
    passed, (code, reason) = asgi(url, False, requests, "websocket")
    assert passed == (101, None)
    assert code == 4409
    assert "stale" in reason


def test_the_reason_for_which_a_websocket_is_closed_fits_into_its_frame() -> None:
    url = f"memory://{uuid4().hex}"
    requests = [guards.http.headers("ü" * 90, 34), guards.http.headers("ü" * 90, 33)]
    _, (_, reason) = asgi(url, False, requests, "websocket")
    assert 100 < len(reason.encode()) <= 123


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


def test_a_store_that_does_not_answer_is_503(monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(*_: object) -> None:
        raise interlock.StoreUnavailable("no answer")

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        raise AssertionError("the application must not run")

    with interlock.connect("memory://") as client:
        fence = guards.http.FenceWSGI(app, client)
        monkeypatch.setattr(HighWaterMark, "raised_to", gone)
        statuses: list[str] = []
        environ = {"HTTP_INTERLOCK_RESOURCE": "report", "HTTP_INTERLOCK_TOKEN": "33"}
        list(fence(environ, lambda status, headers: statuses.append(status)))
    assert statuses == ["503 Service Unavailable"]


@pytest.mark.parametrize("setting", ["ahead", "remember"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 0, "x", True], ids=str)
def test_a_bound_that_bounds_nothing_is_refused_at_once(
    answers: Callable[..., list[Answer]], setting: str, value: Any
) -> None:
    """No token is later than a clock that is not a number, so that setting let every forged token pass."""
    with pytest.raises(
        (interlock.InvalidSetting, TypeError), match=f"{setting} must be a .*number of seconds"
    ):
        answers(**{setting: value})
