"""A middleware that answers 409 to requests whose token is too low, and the headers that carry a token.

    app = guards.http.FenceASGI(app, client)                 # interlock.aio; FenceWSGI takes a blocking client
    httpx.post(url, headers=guards.http.headers(lease))

The highest token of each resource is kept in the store of the client. The middleware looks before the application runs, so a
request that is overtaken while it runs is not stopped: for that the application guards its own transaction, with the resource and
the token that the middleware hands to it. Whoever may send these headers can shut others out by a high token: accept them from
your own services only.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from interlock import aio, blocking
from interlock._core.lease import Lease
from interlock._core.names import checked_name
from interlock.errors import InterlockError, StaleToken, StoreUnavailable
from interlock.guards.presented import checked_token, presented
from interlock.record import record

__all__ = ["FenceASGI", "FenceWSGI", "headers"]

RESOURCE, TOKEN = "Interlock-Resource", "Interlock-Token"

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
WSGIApp: TypeAlias = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

PHRASES = {400: "Bad Request", 409: "Conflict", 503: "Service Unavailable"}


def headers(lease: Lease | str, token: int | None = None) -> dict[str, str]:
    """Return the two headers that carry a token; raise `LeaseLost` if the lease is known to be lost.

    The resource is percent-encoded UTF-8.
    """
    shown = presented(lease, token)
    return {RESOURCE: quote(shown.resource, safe="/:@!$&'()*+,;=-._~"), TOKEN: str(shown.token)}


@record
class Refusal:
    """An answer that is given in place of the application's."""

    status: int
    body: Mapping[str, Any]

    @property
    def text(self) -> bytes:
        return json.dumps(self.body).encode()


class _Fence:
    """What both middlewares share: which requests are refused, and with which answer."""

    def __init__(self, client: Any, required: bool) -> None:
        client.guard(
            "interlock"
        )  # a store that keeps no registers is refused now, and not at the first request
        self._client = client
        self._required = required

    def _presented(self, resources: list[str], tokens: list[str]) -> tuple[str, int] | Refusal | None:
        """Return the resource and the token of a request; None if it has none and needs none."""
        if not resources and not tokens:
            if self._required:
                return Refusal(400, {"error": f"this request needs the headers {RESOURCE} and {TOKEN}"})
            return None
        try:
            (resource,), (token,) = resources, tokens
            if not (token.isascii() and token.isdecimal()):
                raise ValueError(f"{TOKEN} must be a number")
            return checked_name(unquote(resource, errors="strict")), checked_token(int(token))
        except ValueError as error:
            reason = (
                str(error) if len(resources) == len(tokens) == 1 else f"send one {RESOURCE} and one {TOKEN}"
            )
            return Refusal(400, {"error": reason})


def refusal(error: InterlockError) -> Refusal:
    """Return the answer to a request whose token was not accepted."""
    if isinstance(error, StaleToken):
        return Refusal(
            409,
            {
                "error": str(error),
                "resource": error.resource,
                "token": error.token,
                "accepted": error.accepted,
            },
        )
    if isinstance(error, StoreUnavailable):
        return Refusal(503, {"error": "the store of the tokens did not answer; try again"})
    raise error


class FenceASGI(_Fence):
    """Answers 409 to a request whose `Interlock-Token` is lower than one accepted before for its `Interlock-Resource`.

    A request without these headers passes, or is answered with 400 if they are `required`. The application finds what was
    accepted in `scope["interlock"]`, a pair of resource and token. If the store does not answer, the answer is 503.
    """

    def __init__(self, app: ASGIApp, client: aio.Client, *, required: bool = False) -> None:
        if not isinstance(client, aio.Client):
            raise TypeError(
                "FenceASGI needs a client of interlock.aio, so that it never blocks the event loop"
            )
        super().__init__(client, required)
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, as ASGI defines it."""
        if scope["type"] in ("http", "websocket"):
            found = self._presented(_listed(scope, RESOURCE), _listed(scope, TOKEN))
            if isinstance(found, tuple):
                found = await self._accept(found) or found
            if isinstance(found, Refusal):
                await _answer(scope, send, found)
                return
            if found is not None:
                scope = {**scope, "interlock": found}
        await self._app(scope, receive, send)

    async def _accept(self, shown: tuple[str, int]) -> Refusal | None:
        try:
            await self._client.guard(shown[0]).accept(shown[1])
        except InterlockError as error:
            return refusal(error)
        return None


class FenceWSGI(_Fence):
    """Answers 409 to a request whose `Interlock-Token` is lower than one accepted before for its `Interlock-Resource`.

    A request without these headers passes, or is answered with 400 if they are `required`. The application finds what was
    accepted in `environ["interlock"]`, a pair of resource and token. If the store does not answer, the answer is 503.
    """

    def __init__(self, app: WSGIApp, client: blocking.Client, *, required: bool = False) -> None:
        if not isinstance(client, blocking.Client):
            raise TypeError(
                "FenceWSGI needs a client of interlock.connect; FenceASGI takes one of interlock.aio"
            )
        super().__init__(client, required)
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Handle one request, as WSGI defines it."""
        listed = [
            environ[name] for name in ("HTTP_INTERLOCK_RESOURCE", "HTTP_INTERLOCK_TOKEN") if name in environ
        ]
        both = len(listed) == 2
        found = self._presented(listed[:1], listed[1:] if both or not listed else [])
        if isinstance(found, tuple):
            found = self._accept(found) or found
        if isinstance(found, Refusal):
            length = ("Content-Length", str(len(found.text)))
            start_response(
                f"{found.status} {PHRASES[found.status]}", [("Content-Type", "application/json"), length]
            )
            return [found.text]
        if found is not None:
            environ["interlock"] = found
        return self._app(environ, start_response)

    def _accept(self, shown: tuple[str, int]) -> Refusal | None:
        try:
            self._client.guard(shown[0]).accept(shown[1])
        except InterlockError as error:
            return refusal(error)
        return None


def _listed(scope: Scope, name: str) -> list[str]:
    """Return the values of a header of an ASGI request."""
    wanted = name.lower().encode()
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == wanted]


async def _answer(scope: Scope, send: Send, found: Refusal) -> None:
    if scope["type"] == "websocket":
        await send(
            {"type": "websocket.close", "code": 4000 + found.status, "reason": str(found.body["error"])[:100]}
        )
        return
    sent = [(b"content-type", b"application/json"), (b"content-length", str(len(found.text)).encode())]
    await send({"type": "http.response.start", "status": found.status, "headers": sent})
    await send({"type": "http.response.body", "body": found.text})
