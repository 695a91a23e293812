"""The members of an etcd cluster and the login, as a URL names them.

etcd://user:password@host1:2379,host2:2379,host3:2379?prefix=interlock/
etcds://host1,host2,host3?cacert=/etc/ca.pem&cert=/etc/client.pem&key=/etc/client-key.pem
"""

from __future__ import annotations

import ssl
import threading
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from interlock._support.record import record
from interlock.backends.etcd.wire.keys import DEFAULT_PREFIX
from interlock.errors import InvalidURL, StoreUnfit
from interlock.store import CONNECT_TIMEOUT

PORT = 2379
OPTIONS = ("prefix", "cacert", "cert", "key", "server_name")


@record
class Endpoint:
    """The client port of one member."""

    host: str
    port: int
    scheme: str = "etcd"

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def label(self) -> str:
        """Its name in errors."""
        return f"{self.scheme}://{self.authority}"


class TlsSettings:
    """The files of TLS, read when the first connection is made and again after TLS has failed: they may be
    replaced.
    """

    def __init__(
        self, cacert: str | None, cert: str | None, key: str | None, server_name: str | None
    ) -> None:
        self._files = (cacert, cert, key)
        self.server_name = server_name
        self._mutex = threading.Lock()
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        context = self._context
        if context is None:
            context = self._context = self._read()
        return context

    def forget(self) -> None:
        self._context = None

    def _read(self) -> ssl.SSLContext:
        cacert, cert, key = self._files
        try:
            context = ssl.create_default_context(cafile=cacert)
            if cert is not None:
                context.load_cert_chain(cert, key)
        except (OSError, ssl.SSLError) as error:
            names = ", ".join(name for name in self._files if name)
            raise StoreUnfit(f"the files of TLS cannot be used ({names}): {error}") from None
        context.set_alpn_protocols(["h2"])  # without it, etcd's gRPC server closes the connection
        return context


class Address:
    """A cluster, as a URL names it. Its repr shows no password."""

    def __init__(
        self,
        endpoints: tuple[Endpoint, ...],
        *,
        user: str = "",
        password: str = "",
        tls: TlsSettings | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
    ) -> None:
        self.endpoints = endpoints
        self.user = user
        self.password = password
        self.tls = tls
        self.connect_timeout = connect_timeout
        self.hosts = ",".join(endpoint.authority for endpoint in endpoints)
        self.label = f"{endpoints[0].scheme}://{self.hosts}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label}>"


def address_of(parts: SplitResult, connect_timeout: float) -> tuple[Address, str]:
    """The cluster that a URL names, and the prefix of its keys."""
    scheme = parts.scheme
    if parts.fragment:
        raise InvalidURL(f"{scheme}:// takes no #fragment; write %23 for a # in a password")
    if parts.path.strip("/"):
        raise InvalidURL(f"{scheme}://: a URL of etcd has no path; for other keys use ?prefix=")
    options = _options(parts)
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    endpoints = tuple(_endpoint(scheme, host) for host in (hosts or "localhost").split(","))
    if len(set(endpoints)) < len(endpoints):
        raise InvalidURL(f"{scheme}://{hosts}: an endpoint is named twice")
    tls = None
    if scheme == "etcds":
        tls = TlsSettings(*(options.get(name) for name in ("cacert", "cert", "key", "server_name")))
    address = Address(
        endpoints, user=unquote(user), password=unquote(password), tls=tls, connect_timeout=connect_timeout
    )
    return address, options.get("prefix", DEFAULT_PREFIX)


def _options(parts: SplitResult) -> dict[str, str]:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in OPTIONS:
            raise InvalidURL(
                f"{parts.scheme}://: unknown option {name!r}; known are prefix and connect_timeout, and with "
                "etcds:// cacert, cert, key and server_name"
            )
        if name != "prefix" and parts.scheme != "etcds":
            raise InvalidURL(f"{parts.scheme}://: {name} is an option of TLS; write etcds://")
    if ("key" in options) and "cert" not in options:
        raise InvalidURL(f"{parts.scheme}://: a key= without a cert=; name the client's certificate as well")
    prefix = options.get("prefix")
    if prefix is not None and not prefix.strip("/"):
        raise InvalidURL(f"{parts.scheme}://: prefix= must have a name in it, such as interlock/")
    return options


def _endpoint(scheme: str, text: str) -> Endpoint:
    try:
        host = urlsplit(f"//{text}")
        return Endpoint(host.hostname or "localhost", host.port or PORT, scheme)
    except ValueError:
        raise InvalidURL(
            f"{scheme}://: the port must be a number up to 65535, and an address of IPv6 stands in brackets: "
            f"[::1]:{PORT}"
        ) from None
