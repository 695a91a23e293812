"""A middleware that answers 409 to requests whose token is too low, and the headers that carry a token.

    app = guards.http.FenceASGI(app, client)    # interlock.aio; FenceWSGI takes a blocking client
    httpx.post(url, headers=guards.http.headers(lease))

The highest token of each resource is kept in the store of the client. The middleware looks before the
application runs, so a request that is overtaken while it runs is not stopped: for that the application guards
its own transaction, with the resource and the token that the middleware hands to it. Whoever may send these
headers can shut others out by a high token, for as long as `ahead` says, and can fill the store with names.
Where strangers can send requests, give your services a `key`, with which they sign the headers.
"""

from __future__ import annotations

import hmac
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote, unquote

from interlock import aio, blocking
from interlock._core.drive import drive
from interlock._core.high_water_mark import HighWaterMark
from interlock._core.lease import Lease
from interlock._core.names import checked_name
from interlock._core.presented import checked_token, presented
from interlock._core.timing import checked_duration
from interlock._support.record import record
from interlock.errors import InterlockError, InvalidSetting, StaleToken, StoreUnavailable

__all__ = ["FenceASGI", "FenceWSGI", "headers"]

RESOURCE, TOKEN, SIGNATURE = "Interlock-Resource", "Interlock-Token", "Interlock-Signature"

MAX_TOKEN_DIGITS = 19  # digits of 2**63 - 1
MAX_AHEAD_S = 3600.0  # seconds by which a token may be later than the clock of this machine
MAX_REASON_BYTES = 123  # bytes of the reason for which a websocket is closed (RFC 6455)
MARKS_REMOVED_PER_REQUEST = 2  # marks that one request removes at most, so that no request takes long

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
WSGIApp: TypeAlias = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

App = TypeVar("App")
AnyClient = TypeVar("AnyClient", bound=aio.Client | blocking.Client)

PHRASES = {400: "Bad Request", 403: "Forbidden", 409: "Conflict", 503: "Service Unavailable"}


def headers(
    lease: Lease | str, token: int | None = None, *, key: str | bytes | None = None
) -> dict[str, str]:
    """Return the headers that carry a token; raise `LeaseLost` if the lease is known to be lost.

    The resource is percent-encoded UTF-8. With a `key`, a third header shows that the sender has it, too.
    """
    shown = presented(lease, token)
    # No comma: servers put one between the values of a header that was sent twice.
    made = {RESOURCE: quote(shown.resource, safe="/:@!$&'()*+;=-._~"), TOKEN: str(shown.token)}
    if key is not None:
        made[SIGNATURE] = _signature(_checked_key(key), shown.resource, shown.token)
    return made


def _checked_key(key: str | bytes) -> bytes:
    secret = key.encode() if isinstance(key, str) else key
    if len(secret) < 16:
        raise InvalidSetting("a key that signs tokens has at least 16 bytes; make one: secrets.token_hex(16)")
    return secret


def _signature(secret: bytes, resource: str, token: int) -> str:
    return hmac.new(secret, f"{resource}\n{token}".encode(), "sha256").hexdigest()


@record
class Refusal:
    """An answer that is given in place of the application's."""

    status: int
    body: Mapping[str, Any]

    @property
    def text(self) -> bytes:
        return json.dumps(self.body).encode()


class _Fence(Generic[App, AnyClient]):
    """Both middlewares: which requests are refused, and with which answer."""

    _client_type: type[aio.Client] | type[blocking.Client]
    _wrong_client: str
    """The sentence for a client of another type."""

    def __init__(
        self,
        app: App,
        client: AnyClient,
        *,
        required: bool = False,
        key: str | bytes | None = None,
        ahead: float | None = MAX_AHEAD_S,
        remember: float | None = None,
    ) -> None:
        """Put the fence before `app`; the highest tokens are kept in the store of `client`.

        A request without the two headers passes, or is answered with 400 if they are `required`. If the store
        does not answer, the answer is 503.

        With a `key`, a request whose headers were not signed with it is answered with 403. A token that is
        later than the clock by more than `ahead` seconds is answered with 400; None accepts every token.
        Marks are kept for ever, or for `remember` seconds after this process has last seen their resource.
        """
        if not isinstance(client, self._client_type):
            raise TypeError(self._wrong_client)
        # A store that keeps no registers is refused now, and not at the first request.
        client.guard("interlock")
        self._app = app
        self._core = client._core
        self._required = required
        self._secret = None if key is None else _checked_key(key)
        # A number that is none would let every forged token pass, and a text would fail at each request.
        self._ahead = checked_duration(ahead, "ahead")
        kept = checked_duration(remember, "remember")
        self._marks = None if kept is None else _Marks(kept)

    def _presented(
        self, resources: list[str], tokens: list[str], signatures: list[str]
    ) -> tuple[str, int] | Refusal | None:
        """Return the resource and the token of a request; None if it has none and needs none."""
        found = self._read(resources, tokens)
        if not isinstance(found, tuple):
            return found
        if self._secret is not None:
            expected = _signature(self._secret, *found).encode()
            signed = signatures[0].strip().encode() if len(signatures) == 1 else b""
            if not hmac.compare_digest(expected, signed):
                return Refusal(403, {"error": f"{SIGNATURE} is missing or not of our key"})
        if self._ahead is not None and found[1] > (time.time() + self._ahead) * 1e6:
            return Refusal(
                400, {"error": f"{TOKEN} is later than the clock of this machine: no store grants it"}
            )
        return found

    async def _accepted(self, shown: tuple[str, int]) -> Refusal | None:
        """Raise the mark of the resource; return the refusal if it stands higher, or cannot be raised."""
        try:
            _, version = await HighWaterMark(self._core, shown[0]).raised_to(shown[1])
        except InterlockError as error:
            return refusal(error)
        if self._marks is not None:
            self._marks.raised(shown[0], version)
            for name, seen in self._marks.due():
                with suppress(StoreUnavailable):  # the request was accepted; the mark stays
                    await HighWaterMark(self._core, name).forget(seen)
        return None

    def _read(self, resources: list[str], tokens: list[str]) -> tuple[str, int] | Refusal | None:
        if not resources and not tokens:
            if self._required:
                return Refusal(400, {"error": f"this request needs the headers {RESOURCE} and {TOKEN}"})
            return None
        try:
            (resource,), (token,) = resources, tokens
            # Servers read the bytes of a header as Latin-1. Most clients send UTF-8, and the name would be
            # that of another resource, whose tokens are low.
            if not resource.isascii():
                raise ValueError(
                    f"{RESOURCE} must be percent-encoded UTF-8: send what interlock.guards.http.headers "
                    "returns"
                )
            if "," in resource:  # two values, one of which may be another name, whose tokens are low
                raise ValueError(f"send one {RESOURCE}, with each comma of its name as %2C")
            if not (token.isascii() and token.isdecimal()):
                raise ValueError(f"{TOKEN} must be a number")
            if len(token) > MAX_TOKEN_DIGITS:  # Python has a limit of its own, with a sentence of its own
                raise ValueError(f"{TOKEN} has at most {MAX_TOKEN_DIGITS} digits, not {len(token)}")
            return checked_name(unquote(resource, errors="strict")), checked_token(int(token))
        except ValueError as error:
            reason = (
                str(error) if len(resources) == len(tokens) == 1 else f"send one {RESOURCE} and one {TOKEN}"
            )
            return Refusal(400, {"error": reason})


class _Marks:
    """The marks that this process has raised, and when each may be forgotten; the first is the oldest."""

    def __init__(self, remember: float) -> None:
        self._remember = remember
        self._guard = threading.Lock()
        self._marks: dict[str, tuple[float, int]] = {}

    def raised(self, name: str, version: int) -> None:
        with self._guard:
            self._marks.pop(name, None)
            self._marks[name] = (time.monotonic() + self._remember, version)

    def due(self) -> list[tuple[str, int]]:
        """Take a few marks whose time is up."""
        found: list[tuple[str, int]] = []
        now = time.monotonic()
        with self._guard:
            while self._marks and len(found) < MARKS_REMOVED_PER_REQUEST:
                name = next(iter(self._marks))
                until, version = self._marks[name]
                if until > now:
                    break
                del self._marks[name]
                found.append((name, version))
        return found


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


class FenceASGI(_Fence[ASGIApp, aio.Client]):
    """Answers 409 to a request whose `Interlock-Token` is lower than one accepted before for its
    `Interlock-Resource`.

    The application finds what was accepted in `scope["interlock"]`, a pair of resource and token.
    """

    _client_type = aio.Client
    _wrong_client = "FenceASGI needs a client of interlock.aio, so that it never blocks the event loop"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, as ASGI defines it."""
        if scope["type"] in ("http", "websocket"):
            found = self._presented(*(_listed(scope, name) for name in (RESOURCE, TOKEN, SIGNATURE)))
            if isinstance(found, tuple):
                found = await self._accepted(found) or found
            if isinstance(found, Refusal):
                await _answer(scope, send, found)
                return
            if found is not None:
                scope = {**scope, "interlock": found}
        await self._app(scope, receive, send)


class FenceWSGI(_Fence[WSGIApp, blocking.Client]):
    """Answers 409 to a request whose `Interlock-Token` is lower than one accepted before for its
    `Interlock-Resource`.

    The application finds what was accepted in `environ["interlock"]`, a pair of resource and token.
    """

    _client_type = blocking.Client
    _wrong_client = "FenceWSGI needs a client of interlock.connect; FenceASGI takes one of interlock.aio"

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Handle one request, as WSGI defines it."""
        names = ("HTTP_INTERLOCK_RESOURCE", "HTTP_INTERLOCK_TOKEN", "HTTP_INTERLOCK_SIGNATURE")
        found = self._presented(*([environ[name]] if name in environ else [] for name in names))
        if isinstance(found, tuple):
            found = drive(self._accepted(found)) or found
        if isinstance(found, Refusal):
            length = ("Content-Length", str(len(found.text)))
            start_response(
                f"{found.status} {PHRASES[found.status]}", [("Content-Type", "application/json"), length]
            )
            return [found.text]
        if found is not None:
            environ["interlock"] = found
        return self._app(environ, start_response)


def _listed(scope: Scope, name: str) -> list[str]:
    """Return the values of a header of an ASGI request."""
    wanted = name.lower().encode()
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == wanted]


async def _answer(scope: Scope, send: Send, found: Refusal) -> None:
    if scope["type"] == "websocket":
        # A longer one is a protocol error, and a server may drop the connection without any reason.
        reason = str(found.body["error"]).encode()[:MAX_REASON_BYTES].decode(errors="ignore")
        await send({"type": "websocket.close", "code": 4000 + found.status, "reason": reason})
        return
    sent = [(b"content-type", b"application/json"), (b"content-length", str(len(found.text)).encode())]
    await send({"type": "http.response.start", "status": found.status, "headers": sent})
    await send({"type": "http.response.body", "body": found.text})
