"""Events as lines of the log `interlock`: a sentence, and the event's data as attributes of the record.

The attributes are `interlock_event` (the event's name), `interlock_resource`, `interlock_token` and so on. They carry a
prefix because other libraries read plain names from records: Google's handler takes `resource` for the monitored one.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import modules
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

    def wants_all_events(self) -> bool:
        """Whether anybody listens to all events: programs that want warnings only do not pay for making others.

        Asked twice for every pair of acquire and release, so it asks as little as it can.
        """
        if self._listener is not None:
            return True
        if _logger is None:  # nobody has asked for debugging who never imported `logging`
            return "logging" in modules and wanted(DEBUG)
        return _logger.isEnabledFor(DEBUG)


def callback_reporter(listen: Callable[[Event], object]) -> Callable[[BaseException, Any], None]:
    """What a runtime calls when a user's callback has failed: the error, and the lease that it was called with."""

    def report(error: BaseException, lease: Any) -> None:
        listen(CallbackFailed(repr(error), lease.resource, error))

    return report


_logger: Logger | None = None


def wanted(level: int) -> bool:
    """Whether the log takes lines of this level; of a program that has not imported `logging`, warnings only."""
    global _logger
    logger = _logger
    if logger is None:
        logging: Any = modules.get("logging")
        if not hasattr(logging, "getLogger"):  # not imported; or another thread is in the middle of it
            return level >= WARNING
        logger = _logger = logging.getLogger(NAME)
    return bool(logger.isEnabledFor(level))


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
