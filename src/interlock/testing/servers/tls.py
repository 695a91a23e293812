"""Certificates and servers for tests of TLS: each certificate is its own authority, so a client trusts
those it names.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from interlock.testing.servers.process import free_port
from interlock.testing.servers.redis import Server

NAMES = "DNS:localhost,IP:127.0.0.1"


def certificate(folder: Path, name: str, names: str = NAMES) -> Path:
    """A new certificate, signed by itself; its key lies beside it."""
    path = folder / f"{name}.pem"
    made = subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
            ),
            *("-days", "1", "-subj", f"/CN={name}", "-addext", f"subjectAltName={names}"),
            *("-keyout", str(path.with_suffix(".key")), "-out", str(path)),
        ],
        capture_output=True,
    )
    assert made.returncode == 0, made.stderr
    return path


def expired(folder: Path, name: str) -> Path:
    """A certificate that was valid until yesterday."""
    path = certificate(folder, name)
    signed = ("-signkey", str(path.with_suffix(".key")), "-days", "-1")
    made = subprocess.run(
        ["openssl", "x509", "-in", str(path), *signed, "-out", str(path)], capture_output=True
    )
    assert made.returncode == 0, made.stderr
    return path


@contextmanager
def shown_alone(shown: Path) -> Iterator[int]:
    """The port of a server that shows a certificate and says nothing else: for clients that begin with TLS,
    whatever they speak then.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown, shown.with_suffix(".key"))
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            while True:
                try:
                    peer, _ = listening.accept()
                except OSError:
                    return
                with peer, suppress(OSError), context.wrap_socket(peer, server_side=True):
                    pass

        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


class SecureServer(Server):
    """A server that speaks TLS on `secure`, under this certificate; without TLS, for tests to look, on
    `port`.
    """

    def __init__(self, shown: Path, *options: str) -> None:
        self.secure = free_port()
        files = ("--tls-cert-file", str(shown), "--tls-key-file", str(shown.with_suffix(".key")))
        more = ("--tls-ca-cert-file", str(shown), "--tls-auth-clients", "no")
        super().__init__("--tls-port", str(self.secure), *files, *more, *options)
