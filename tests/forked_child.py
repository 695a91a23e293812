"""A forked child of the test that does some work and says what came of it."""

from __future__ import annotations

import os
from collections.abc import Callable


def in_a_child(work: Callable[[], object]) -> object:
    """What `work` says in a forked child."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, repr(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    return answer
