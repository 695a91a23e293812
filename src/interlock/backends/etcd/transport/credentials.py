"""The login of a client, and the token that the server gave for it, which all connections of the client share."""

from __future__ import annotations

from interlock.backends.etcd.wire.http2 import literal


class Credentials:
    """A user with a password, or nobody. The token expires; then the transports log in again."""

    def __init__(self, user: str, password: str) -> None:
        self.user = user
        self.password = password
        self._token = b""
        self.metadata = b""  # the header with the token, as it is sent with every call

    @property
    def missing(self) -> bool:
        """Whether there is a user who is not logged in."""
        return bool(self.user) and not self._token

    def accept(self, token: bytes) -> None:
        self._token = token
        self.metadata = literal(b"token", token)

    def forget(self) -> None:
        self._token = self.metadata = b""
