"""Examines the servers of an ensemble: the session that they grant, and what four-letter words tell.

A server answers `srvr`, `conf` and `isro` on its client port only if its operator permits them.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence

from interlock._support.record import record
from interlock._support.wording import duration
from interlock.backends.kit.examining import Examiner
from interlock.model import Finding

WORDS = ("srvr", "conf", "isro")
MOST_BYTES = 1 << 16
REFUSED = "is not executed because it is not in the whitelist"


@record
class ServerFacts:
    """The answers of one server; an empty text where it may not tell, or could not."""

    label: str
    mode: str  # leader, follower, observer or standalone
    conf: dict[str, str]
    read_only: bool


def ask_server(host: str, port: int, timeout: float) -> ServerFacts:
    """Ask one server, on a plain connection for each word, and block for `timeout` seconds at most."""
    until = time.monotonic() + timeout
    told = {word: _told(word, host, port, until) for word in WORDS}
    mode = next((line[6:] for line in told["srvr"].splitlines() if line.startswith("Mode: ")), "")
    conf = {
        name: value
        for name, mark, value in (line.partition("=") for line in told["conf"].splitlines())
        if mark
    }
    return ServerFacts(f"{host}:{port}", mode, conf, told["isro"].strip() == "ro")


def _told(word: str, host: str, port: int, until: float) -> str:
    try:
        with socket.create_connection((host, port), max(0.001, until - time.monotonic())) as sock:
            sock.sendall(word.encode())
            data = b""
            while len(data) < MOST_BYTES:
                sock.settimeout(max(0.001, until - time.monotonic()))
                part = sock.recv(4096)
                if not part:
                    break
                data += part
    except OSError:  # a timeout, too
        return ""
    text = data.decode("utf-8", "replace")
    return "" if REFUSED in text else text


# -- the checks: pure ----------------------------------------------------------------------------


def session(granted: float, wanted: float) -> Iterator[Finding]:
    """zk-session: the servers' bounds may replace the time that was asked for."""
    told = f"the servers granted a session of {duration(granted)}"
    if granted + 0.001 < wanted:
        yield Finding(
            "zk-session",
            "warning",
            f"{told} where {duration(wanted)} was asked for: leases live no longer than that",
            "raise maxSessionTimeout on all servers, or choose a shorter ttl",
        )
    elif granted > wanted + 0.001:
        yield Finding(
            "zk-session",
            "note",
            f"{told} where {duration(wanted)} was asked for: a crashed holder blocks others for so long",
            "lower minSessionTimeout on all servers",
        )
    else:
        yield Finding("zk-session", "good", f"{told}, as was asked for")


def ensemble(found: Sequence[ServerFacts], asked: int) -> Iterator[Finding]:
    """zk-ensemble: servers that are read-only, alone, or do not write to their disks."""
    told = [facts for facts in found if facts.mode or facts.conf]
    if not told:
        yield Finding(
            "zk-ensemble",
            "unknown",
            "the servers do not answer srvr and conf",
            "4lw.commands.whitelist=srvr,conf,isro in zoo.cfg lets doctor look",
        )
        return
    wrong = False
    for facts in told:
        if facts.read_only:
            wrong = True
            text = "the server is read-only: it is cut off from the leader, and grants no lock"
            yield Finding("zk-ensemble", "danger", text, server=facts.label)
        if facts.conf.get("forceSync", "yes") == "no":
            wrong = True
            text = "forceSync=no: a power failure of most servers may lose the last grants"
            yield Finding("zk-ensemble", "danger", text, "forceSync=yes in zoo.cfg", facts.label)
    servers = max((_servers(facts) for facts in told), default=0)
    if any(facts.mode == "standalone" for facts in told):
        wrong = True
        yield Finding(
            "zk-ensemble",
            "warning",
            "the server stands alone: while it is down nobody gets a lock",
            "three or five servers, each on a machine of its own",
        )
    elif servers and servers % 2 == 0:
        wrong = True
        text = f"{servers} servers vote: {(servers - 1) // 2} may fail, as of {servers - 1}"
        yield Finding("zk-ensemble", "note", text, "an odd number of servers")
    if len(told) < asked:
        yield Finding(
            "zk-ensemble", "unknown", f"{asked - len(told)} of the {asked} servers of the URL did not tell"
        )
    elif not wrong:
        yield Finding("zk-ensemble", "good", f"{len(told)} servers, one of which leads")


def _servers(facts: ServerFacts) -> int:
    """How many voters a server's configuration names."""
    return sum(name.startswith("server.") and ":observer" not in value for name, value in facts.conf.items())


def expect(examiner: Examiner, found: Sequence[ServerFacts]) -> None:
    """What failures would do to the ensemble."""
    unsynced = any(facts.conf.get("forceSync", "yes") == "no" for facts in found)
    examiner.expect("a minority of servers dies", "yes", "yes", "for an election: about a second")
    examiner.expect("most servers die", "yes", "yes", "until a majority is back")
    examiner.expect(
        "the power fails everywhere", "yes", "no" if unsynced else "yes", "until a majority is back"
    )
    examiner.expect("the network is cut", "yes", "yes", "the side without a majority, until it heals")
    examiner.expect("clocks jump", "yes", "yes", "not at all")
    examiner.expect("the ensemble is restored from a snapshot", "yes", "no", "not at all")
