"""Ctrl-C wherever Python would look for it: after a call, at a loop's end, at the start of a function.

for strike in strikes(operation, path):     # runs the operation again and again, struck one step later each time
    ...                                     # look at what is left
"""

from __future__ import annotations

import dis
import gc
import os
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

LOOKS = ("CALL", "CALL_KW", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD")

_places: dict[CodeType, set[int]] = {}


def _struck_at(code: CodeType) -> set[int]:
    """Offsets before which signals are looked for, and where an exception meets the same handler."""
    found = _places.get(code)
    if found is None:
        found = _places[code] = set()
        table: list[Any] = dis._parse_exception_table(code)  # type: ignore[attr-defined]

        def handler(offset: int) -> object:
            return next((entry.target for entry in table if entry.start <= offset < entry.end), None)

        before: dis.Instruction | None = None
        for instruction in dis.get_instructions(code):
            if before is not None and before.opname in LOOKS:
                if handler(before.offset) == handler(instruction.offset):
                    found.add(instruction.offset)
            before = instruction
    return found


class Strike:
    """One run of an operation, interrupted at its n-th step inside `folder`.

    `handler` is what a program's own signal handler does there; without one, Ctrl-C raises.
    """

    def __init__(self, number: int, folder: str, handler: Callable[[], object] | None = None) -> None:
        self._handler = handler
        self._struck = False
        self.number = number
        self.where = ""
        self._folder = folder
        self._steps = 0
        self._tracers: dict[CodeType, Any] = {}

    def run(self, operation: Callable[[], object]) -> bool:
        """Whether it struck."""
        gc.disable()  # finalizers of earlier tests are no part of the operation, and must not be struck
        sys.settrace(self._enter)
        try:
            operation()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
            gc.enable()
        return self._struck

    def _enter(self, frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(self._folder):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._tracers.get(frame.f_code) or self._tracer(frame.f_code)

    def _tracer(self, code: CodeType) -> Any:
        places = _struck_at(code)

        def trace(frame: FrameType, event: str, arg: object) -> Any:
            if frame.f_lasti in places and event == "opcode":  # asked before every instruction, so kept short
                self._step(frame)
            return trace

        self._tracers[code] = trace
        return trace

    def _step(self, frame: FrameType) -> None:
        self._steps += 1
        if self._steps == self.number:
            self.where = (
                f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_name}"
            )
            sys.settrace(None)
            if self._handler is None:
                raise KeyboardInterrupt
            self._struck = True
            self._handler()


def strikes(
    operation: Callable[[], object],
    folder: str,
    limit: int = 2000,
    handler: Callable[[], object] | None = None,
) -> Iterator[Strike]:
    """Run the operation, struck one step later each time, until it ends unstruck."""
    for number in range(1, limit):
        strike = Strike(number, folder, handler)
        if not strike.run(operation):
            return
        yield strike
    raise AssertionError(f"not at its end after {limit} steps")
