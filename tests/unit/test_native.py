"""Threads of the system: their start does not hang, and their end is noticed however they end."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from interlock._support import native
from tests.patience import PATIENCE

START: Any = vars(threading).get("_start_new_thread")
EARLY = pytest.mark.skipif(sys.version_info >= (3, 12), reason="there, nothing can strike a new thread early")


def no_work() -> None: ...


def struck(call: Callable[[], object], args: tuple[object, ...]) -> int:
    """A thread whose first instruction raises: it drops its call without making it."""
    ident: int = START((lambda *_: None), (call,))
    return ident


class TestThread:
    def test_it_is_a_thread_with_a_name_that_can_be_joined(self) -> None:
        seen: list[str] = []
        thread = native.Thread(target=lambda: seen.append(threading.current_thread().name), name="mine")
        thread.start()
        thread.join(PATIENCE)
        assert seen == ["mine"]
        assert not thread.is_alive()
        assert thread not in threading.enumerate()

    @EARLY
    def test_one_that_is_ended_before_it_begins_is_an_error_of_its_start(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        thread = native.Thread(target=no_work, daemon=True)
        monkeypatch.setattr(threading, "_start_new_thread", struck)
        with pytest.raises(RuntimeError, match="before it began"):
            thread.start()
        monkeypatch.undo()
        assert not thread.is_alive()
        assert thread not in threading.enumerate()

    @EARLY
    def test_one_that_never_began_is_not_alive_though_its_start_was_interrupted(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        thread = native.Thread(target=no_work, daemon=True)
        monkeypatch.setattr(threading, "_start_new_thread", struck)
        threading.Thread.start(thread)  # and no further
        assert not thread.is_alive()

    def test_a_thread_that_cannot_be_had_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def none_left(*args: object, **options: object) -> None:
            raise RuntimeError("can't start new thread")

        name = "_start_joinable_thread" if sys.version_info >= (3, 13) else "_start_new_thread"
        monkeypatch.setattr(threading, name, none_left)
        thread = native.Thread(target=no_work, daemon=True)
        with pytest.raises(RuntimeError, match="can't start"):
            thread.start()
        monkeypatch.undo()
        assert thread not in threading.enumerate()


class TestBegin:
    def test_the_end_is_told_once_after_the_work(self) -> None:
        told: list[str] = []
        over = threading.Event()

        def ended() -> None:
            told.append("ended")
            over.set()

        native.begin(lambda: told.append("work"), ended)
        assert over.wait(PATIENCE)
        assert told == ["work", "ended"]

    def test_the_end_is_told_though_the_work_is_never_begun(self) -> None:
        told: list[str] = []
        life = native._ThreadLife(no_work, lambda: told.append("ended"))
        del life  # as a thread does that was struck before its first instruction
        assert told == ["ended"]

    def test_the_end_is_told_though_the_error_that_struck_at_the_first_instruction_is_kept(self) -> None:
        """A hook that reports errors of threads may keep the last one, and with it the frame that was struck."""
        told: list[str] = []
        target = native._ThreadLife(no_work, lambda: told.append("ended")).target()

        def strike(frame: FrameType, event: str, argument: object) -> None:
            if frame.f_code is native._live.__code__:
                raise KeyboardInterrupt

        traced = sys.gettrace()
        sys.settrace(strike)
        try:
            with pytest.raises(KeyboardInterrupt) as kept:
                target()
        finally:
            sys.settrace(traced)
        assert kept.value.__traceback__ is not None
        assert not told, "its thread has not ended yet"
        del target
        assert told == ["ended"]

    def test_no_end_is_told_of_a_thread_that_cannot_be_had(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def none_left(*args: object) -> None:
            raise RuntimeError("can't start new thread")

        told: list[str] = []
        monkeypatch.setattr("_thread.start_new_thread", none_left)
        with pytest.raises(RuntimeError):
            native.begin(no_work, lambda: told.append("ended"))
        assert not told
