"""Events as lines of the log `interlock`: a sentence, and the event's data as attributes of the record.

The attributes are `interlock_event` (the event's name), `interlock_resource`, `interlock_token` and so on. They carry a
prefix because other libraries read plain names from records: Google's handler takes `resource` for the monitored one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from interlock.events import DEBUG, WARNING, CallbackFailed, Event
from interlock.model import Standing
from interlock.who import Who
from interlock.wording import printable

if TYPE_CHECKING:
    from logging import Logger

NAME = "interlock"


class Log:
    """A listener that writes events to the log, and then tells the user's own listener, if there is one."""

    def __init__(self, listener: Callable[[Event], object] | None = None) -> None:
        self._listener = listener

    def __call__(self, event: Event) -> None:
        try:
            write(event)
        finally:  # a handler that raises is no reason to leave the listener out
            if self._listener is not None:
                self._listener(event)

    def curious(self) -> bool:
        """Whether anybody listens to all events: programs that want warnings only do not pay for making others."""
        return self._listener is not None or wanted(DEBUG)


def callback_reporter(listen: Callable[[Event], object]) -> Callable[[BaseException, Any], None]:
    """What a runtime calls when a user's callback has failed: the error, and the lease that it was called with."""

    def report(error: BaseException, lease: Any) -> None:
        listen(CallbackFailed(repr(error), lease.resource, error))

    return report


def wanted(level: int) -> bool:
    """Whether the log takes lines of this level. Nobody has asked for debugging who never imported `logging`."""
    logger = _logger if _logger is not None else _found()
    return level >= WARNING if logger is None else logger.isEnabledFor(level)


_logger: Logger | None = None


def _found() -> Logger | None:
    """The logger, once the program has imported `logging`, which is not worth 10 ms to those who have not."""
    global _logger
    logging: Any = sys.modules.get("logging")
    if hasattr(logging, "getLogger"):  # another thread may be in the middle of importing it
        _logger = logging.getLogger(NAME)
    return _logger


def write(event: Event) -> None:
    """Write one event to the log, if its level is wanted there."""
    if not wanted(event.level):
        return
    from logging import getLogger  # here, not above: `import interlock` stays light

    exception: BaseException | None = getattr(event, "exception", None)
    getLogger(NAME).log(event.level, printable(str(event)), extra=fields(event), exc_info=exception)


def fields(event: Event) -> dict[str, object]:
    """The data of an event as attributes of a log record: plain values, which any formatter can write."""
    found: dict[str, object] = {"interlock_event": type(event).__name__}
    names: tuple[str, ...] = type(event).__match_args__
    for name in names:
        value = getattr(event, name)
        if isinstance(value, Standing):
            found["interlock_holder_token"] = value.token
            found["interlock_holder_age"] = value.age
            value = str(Who.parse(value.who))
        if name != "exception":  # the record has it as exc_info
            found[f"interlock_{name}"] = value
    return found
