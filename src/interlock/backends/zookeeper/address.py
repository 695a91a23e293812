"""The servers of an ensemble and how to speak to them: from a URL, or from a user's own KazooClient."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from interlock._support.record import record
from interlock.backends.zookeeper.library import security
from interlock.errors import InvalidURL, StoreUnfit
from interlock.store import CONNECT_TIMEOUT

SESSION_TIMEOUT_S = 30.0
"""Seconds that a session lives after its client was last heard of, unless the URL or the client's ttl says
otherwise.
"""

JUTE_MAXBUFFER = 0xFFFFF
"""Bytes that the servers accept in one piece (their property `jute.maxbuffer`), unless they and the URL
say otherwise.
"""

PORT = 2181

FILES = ("ca", "certfile", "keyfile", "keyfile_password")
SASL = ("mechanism", "username", "password", "service", "principal")


@record
class Address:
    """Everything that a session needs to begin."""

    hosts: tuple[tuple[str, int], ...]
    chroot: str
    session_timeout: float | None  # None: as long as the client's ttl
    connect_timeout: float
    auth: tuple[tuple[str, str], ...]
    sasl: tuple[tuple[str, str], ...]
    tls: dict[str, Any]
    acl: list[Any]
    jute_maxbuffer: int = JUTE_MAXBUFFER

    @property
    def hosts_text(self) -> str:
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)

    @property
    def label(self) -> str:
        """The ensemble, for messages: without credentials."""
        return f"zookeeper://{self.hosts_text}{self.chroot}"


def of_url(parts: SplitResult, connect_timeout: float = CONNECT_TIMEOUT) -> Address:
    """The settings in `zookeeper://user:password@h1,h2,h3/chroot?session_timeout=30&tls=1...`."""
    if parts.fragment:
        raise InvalidURL("zookeeper:// takes no #fragment; write %23 for a # in a password")
    credentials, _, hosts = parts.netloc.rpartition("@")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    auth: tuple[tuple[str, str], ...] = ()
    if credentials:
        user, _, password = credentials.partition(":")
        auth = (("digest", f"{unquote(user)}:{unquote(password)}"),)
    sasl = tuple((name, options.pop(f"sasl_{name}")) for name in SASL if f"sasl_{name}" in options)
    address = Address(
        hosts=tuple(_host(host) for host in (hosts or "localhost").split(",")),
        chroot=_chroot(unquote(parts.path)),
        session_timeout=_seconds(options),
        connect_timeout=connect_timeout,
        auth=auth,
        sasl=_checked_sasl(sasl),
        tls=_tls(options),
        acl=_acl(options, bool(auth or sasl)),
        jute_maxbuffer=_bytes(options),
    )
    if options:
        raise InvalidURL(
            f"zookeeper:// does not know the option {next(iter(options))}; it has session_timeout, acl, "
            f"jute_maxbuffer, tls, {', '.join(FILES)}, verify_certs, check_hostname, and sasl_ with "
            f"{', '.join(SASL)}"
        )
    return address


def of_client(client: Any, connect_timeout: float = CONNECT_TIMEOUT) -> Address:
    """The settings of a KazooClient. Its session stays its own: ours begins and ends beside it."""
    sasl: dict[str, Any] = client._connection.sasl_options or {}
    tls: dict[str, Any] = {
        "use_ssl": client.use_ssl,
        "verify_certs": client.verify_certs,
        "check_hostname": client.check_hostname,
        **{name: getattr(client, name) for name in FILES},
    }
    return Address(
        hosts=tuple((host, int(port)) for host, port in client.hosts),
        chroot=client.chroot or "",
        session_timeout=None,
        connect_timeout=connect_timeout,
        auth=tuple(client.auth_data),
        sasl=tuple(sasl.items()),
        tls=tls if client.use_ssl else {},
        acl=list(client.default_acl or security.OPEN_ACL_UNSAFE),
    )


def _host(text: str) -> tuple[str, int]:
    try:
        found = urlsplit(f"//{text}")
        if not found.hostname:
            raise ValueError
        return found.hostname, found.port or PORT
    except ValueError:
        raise InvalidURL(
            "zookeeper://: name each server as host:port, separated by commas; an address of IPv6 stands in "
            "brackets: [::1]:2181"
        ) from None


def _chroot(path: str) -> str:
    parts = [part for part in path.split("/") if part]
    if any(part in (".", "..") for part in parts):
        raise InvalidURL("zookeeper://: a chroot is an absolute path without . and ..")
    return "".join(f"/{part}" for part in parts)


def _seconds(options: dict[str, str]) -> float | None:
    text = options.pop("session_timeout", None)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 86400:
        raise InvalidURL(
            f"session_timeout={text}: say after how many seconds a silent client is given up, such as 30"
        )
    return seconds


def _bytes(options: dict[str, str]) -> int:
    text = options.pop("jute_maxbuffer", f"{JUTE_MAXBUFFER}")
    if not (text.isdecimal() and int(text) >= 10_000):
        raise InvalidURL(f"jute_maxbuffer={text}: say the servers' jute.maxbuffer in bytes, such as 4194304")
    return int(text)


def _flag(options: dict[str, str], name: str, otherwise: bool) -> bool:
    text = options.pop(name, "1" if otherwise else "0").lower()
    if text not in ("0", "1", "true", "false"):
        raise InvalidURL(f"{name}={text}: say 1 or 0")
    return text in ("1", "true")


def _tls(options: dict[str, str]) -> dict[str, Any]:
    wanted = _flag(options, "tls", False)
    files = {name: options.pop(name) for name in FILES if name in options}
    verify = _flag(options, "verify_certs", True)
    names = _flag(options, "check_hostname", verify)
    if not wanted:
        if files:
            raise InvalidURL(f"{next(iter(files))} is an option of TLS: add tls=1")
        return {}
    return {"use_ssl": True, "verify_certs": verify, "check_hostname": names, **files}


def _acl(options: dict[str, str], credentials: bool) -> list[Any]:
    """Whoever gives credentials expects that others cannot touch what they protect."""
    chosen = options.pop("acl", "creator" if credentials else "open")
    if chosen not in ("open", "creator"):
        raise InvalidURL(f"acl={chosen}: say open (anybody may) or creator (only these credentials may)")
    return list(security.CREATOR_ALL_ACL if chosen == "creator" else security.OPEN_ACL_UNSAFE)


def _checked_sasl(sasl: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    if not sasl:
        return sasl
    if "mechanism" not in dict(sasl):
        raise InvalidURL("sasl_mechanism is missing: say DIGEST-MD5 or GSSAPI")
    if find_spec("puresasl") is None:
        raise StoreUnfit("SASL needs the library pure-sasl; install it: pip install 'kazoo[sasl]'")
    return sasl
