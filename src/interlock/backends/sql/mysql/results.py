"""Reads what a statement returns from a connection of PyMySQL.

PyMySQL makes objects of every packet, column and result, which takes longer than the way to the server and
back. Here packets stay bytes. See "Text Resultset" in the description of MySQL's protocol.
"""

from __future__ import annotations

from typing import Any

from interlock.backends.sql.steps import Rows

MAX_PACKET_BYTES = 0xFFFFFF  # bytes of a packet: a longer one goes on in the next
MORE_RESULTS = 8  # of the status: another result follows
OK, FILE, END, ERROR = 0x00, 0xFB, 0xFE, 0xFF  # first bytes of packets
NULL = 0xFB
WIDTHS = {0xFC: 3, 0xFD: 4, 0xFE: 9}  # bytes of a number, with the one that says so
BINARY = 63  # the character set of bytes
CONVERTERS: dict[int, type[int] | type[float]] = {
    **dict.fromkeys((1, 2, 3, 8, 9, 13), int),  # from tinyint to bigint
    **dict.fromkeys((0, 4, 5, 246), float),  # decimal, float, double
}
LOST = 2013
READ_BYTES = 4096  # bytes that are read at once: all of most answers


class Failed(Exception):
    """What the server says in place of a result, or that it has gone: (code, text), as errors of PyMySQL
    have it.
    """


class ResultReader:
    """Reads the results of one statement that was sent over `connection`."""

    def __init__(self, connection: Any) -> None:
        self._encoding: str = connection.encoding
        self._file = connection._rfile
        self._number = 1  # of the next packet
        self._bytes = b""  # what has arrived
        self._at = 0  # how much of it was read

    def results(self) -> list[Rows]:
        """The rows of each statement that returns some, in order.

        Raises `Failed`, also for an error after rows.
        """
        results: list[Rows] = []
        while True:
            packet = self._packet()
            if packet[0] == OK:
                status = _status(packet)
            elif packet[0] == FILE:
                raise Failed(LOST, "it asks for a file of this machine")
            else:
                rows, status = self._rows(packet[0])
                results.append(rows)
            if not status & MORE_RESULTS:
                if self._at < len(self._bytes):
                    raise Failed(LOST, "it has sent more than its answer")
                return results

    def _rows(self, width: int) -> tuple[Rows, int]:
        """The rows of one statement with so many columns, and the status after them."""
        columns: list[tuple[Any, str | None]] = []
        for _ in range(width):
            packet = self._packet()
            text = packet[-12] != BINARY or packet[-11]
            columns.append((CONVERTERS.get(packet[-6]), self._encoding if text else None))
        self._packet()  # the end of the columns
        rows: list[tuple[Any, ...]] = []
        while True:
            packet = self._packet()
            if packet[0] == END and len(packet) < 9:
                return rows, packet[3]
            rows.append(_row(packet, columns))

    def _packet(self, first: bool = True) -> bytes:
        """The next packet.

        One that goes on the packet before it (not `first`) is never an error, whatever its first byte is.
        """
        start = self._at + 4
        if start > len(self._bytes):
            start = self._arrive(4)
        found = self._bytes
        if found[start - 1] != self._number & 0xFF:
            raise Failed(LOST, "its packets are out of order")
        self._number += 1
        size = found[start - 4] | found[start - 3] << 8 | found[start - 2] << 16
        end = start + size
        if end > len(found):
            end = self._arrive(4 + size)
            start, found = 4, self._bytes
        self._at = end
        if first and found[start] == ERROR:
            raise _error(found[start:end])
        return found[start:end] if size < MAX_PACKET_BYTES else found[start:end] + self._packet(first=False)

    def _arrive(self, size: int) -> int:
        """Have so many unread bytes, and return where they end; what was read before is forgotten."""
        found = self._bytes[self._at :]
        try:
            while len(found) < size:
                missing = size - len(found)
                more = self._file.read1(READ_BYTES) if missing <= READ_BYTES else self._file.read(missing)
                if not more:
                    raise Failed(LOST, "it has closed the connection")
                found += more
        except TimeoutError:
            raise
        except OSError as error:
            raise Failed(LOST, f"the connection has ended ({error})") from None
        self._bytes, self._at = found, 0
        return size


def _error(packet: bytes) -> Failed:
    text = packet[9:] if packet[3:4] == b"#" else packet[3:]  # without its SQLSTATE
    return Failed(packet[1] | packet[2] << 8, text.decode("utf-8", "replace"))


def _status(packet: bytes) -> int:
    """That of an OK packet, after the numbers of changed rows and of the last id."""
    if packet[1] < NULL and packet[2] < NULL:
        return packet[3]
    return packet[_after(packet, _after(packet, 1))]


def _after(packet: bytes, at: int) -> int:
    """Where the number at this place ends."""
    return at + WIDTHS.get(packet[at], 1)


def _row(packet: bytes, columns: list[tuple[Any, str | None]]) -> tuple[Any, ...]:
    values: list[Any] = []
    at = 0
    for convert, encoding in columns:
        size = packet[at]
        if size == NULL:
            values.append(None)
            at += 1
            continue
        start = _after(packet, at)
        if start > at + 1:
            size = int.from_bytes(packet[at + 1 : start], "little")
        at = start + size
        value = packet[start:at]
        values.append(convert(value) if convert else value.decode(encoding) if encoding else value)
    return tuple(values)
