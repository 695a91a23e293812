"""The login of a client, and the token that the server gave for it, which all connections of the client
share.
"""

from __future__ import annotations

from interlock._support import native
from interlock.backends.etcd.wire.http2 import literal


class Credentials:
    """A user with a password, or nobody. The token expires; then one caller logs in again for all.

    The server hashes the password for each login, slowly on purpose: a hundred logins at once would keep it
    from everything else.
    """

    def __init__(self, user: str, password: str) -> None:
        self.user = user
        self.password = password
        self._token = b""
        self._mutex = native.mutex()
        self._busy_until = 0.0  # by then the caller who logs in has done so, or is gone without a word
        self.metadata = b""  # the header with the token, as it is sent with every call
        self.number = 0  # counts the tokens

    @property
    def missing(self) -> bool:
        """Whether there is a user who is not logged in."""
        return bool(self.user) and not self._token

    def accept(self, token: bytes) -> None:
        self._token = token
        self.metadata = literal(b"token", token)
        self.number += 1

    def forget(self, number: int) -> None:
        """Forget the token with this number, which was refused, unless there is a newer one."""
        if number == self.number:
            self._token = self.metadata = b""

    def take_lead(self, now: float, seconds: float) -> bool:
        """True: the caller logs in now and calls `finished` in the end. False: another one does."""
        with self._mutex:
            if now < self._busy_until:
                return False
            self._busy_until = now + seconds
            return True

    def finished(self) -> None:
        self._busy_until = 0.0
