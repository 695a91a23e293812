"""Lists of a folder that many callers share.

The server answers the requests of a session in their order. So one list that is sent after the requests of
many claims shows all of them. While a list of a folder is under way, whoever needs a later one waits for the
next: a crowd costs one list for each round trip, and not one for each claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import count

from interlock._core.runtime import Signal
from interlock._support import native
from interlock.backends.kit.deadline import Deadline
from interlock.backends.zookeeper import requests
from interlock.backends.zookeeper.library import NoNode
from interlock.backends.zookeeper.queue_view import QueueView
from interlock.backends.zookeeper.requester import Requester
from interlock.backends.zookeeper.requests import Request
from interlock.backends.zookeeper.session_client import Answer, SessionClient, late

# Seconds after which a list is not waited for any more: the caller who was to send it may have been
# interrupted.
OVERDUE_S = 1.0


class QueueRead:
    """One list of a folder, and everybody who waits for it."""

    def __init__(self, number: int, now: float) -> None:
        self.number = number
        self.began = now
        self.following: QueueRead | None = None  # for those who came after it was sent
        self.signals: list[Signal] = []
        self.answer: Answer | None = None
        self._view: QueueView | None = None

    @property
    def missing(self) -> bool:
        """Whether there is no such folder."""
        return self.answer is not None and self.answer.failed(NoNode)

    def view(self) -> QueueView:
        """The queue, which is read by the first who asks; raises the error of interlock if the list has
        failed.
        """
        if self._view is None:
            assert self.answer is not None
            if self.missing:
                return QueueView([], number=self.number)
            children, stat = self.answer.get()
            self._view = QueueView.of(children, stat.version, self.number)
        return self._view


class QueueReads:
    """The lists of one client that are under way, by folder."""

    def __init__(self, session_client: SessionClient) -> None:
        self._session_client = session_client
        self.after_fork()

    def after_fork(self) -> None:
        self._mutex = native.mutex()
        self._under_way: dict[str, QueueRead] = {}
        self._numbers = count(1)

    async def after(
        self, requester: Requester, folder: str, first: Sequence[Request], deadline: Deadline
    ) -> tuple[list[Answer], QueueRead]:
        """Send these requests, and wait for a list of the folder that was sent after them."""
        timeout, signal = requester.request_timeout(deadline), requester.runtime.signal()
        answers = self._session_client.send(first, None)
        queue_read = self._join(folder, signal)
        await requester.answered(signal, timeout)
        if not all(answer.done for answer in answers):  # so the list was not sent after them: it has failed
            queue_read.view()
            raise late(self._session_client.label, timeout)
        return answers, queue_read

    def _join(self, folder: str, signal: Signal) -> QueueRead:
        """Wait for the next list of a folder, and send it if none is under way."""
        now = self._session_client.now()
        with self._mutex:
            before = self._under_way.get(folder)
            if before is not None and now < before.began + OVERDUE_S:
                if before.following is None:
                    before.following = QueueRead(next(self._numbers), now)
                before.following.signals.append(signal)
                return before.following
            queue_read = self._under_way[folder] = QueueRead(next(self._numbers), now)
            queue_read.signals.append(signal)
        self._send(folder, queue_read)
        return queue_read

    def _send(self, folder: str, queue_read: QueueRead) -> None:
        self._session_client.tell(requests.list_children(folder), partial(self._answered, folder, queue_read))

    def _answered(self, folder: str, queue_read: QueueRead, answer: Answer) -> None:
        """Called on the connection's thread: tell everybody, and send the next list if somebody waits for
        it.
        """
        queue_read.answer = answer
        with self._mutex:
            following = queue_read.following
            if self._under_way.get(folder) is queue_read:
                if following is None:
                    del self._under_way[folder]
                else:
                    self._under_way[folder], following.began = following, self._session_client.now()
            signals = list(queue_read.signals)
        if following is not None:
            self._send(folder, following)
        for signal in signals:
            signal.set()
