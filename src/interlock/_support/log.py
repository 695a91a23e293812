"""Writes events to the logger `interlock`: a sentence, with the data of the event as attributes of the log
record.

The attributes are `interlock_event` (the name of the event), `interlock_resource`, `interlock_token` and so
on. They have a prefix because other libraries read plain names from log records: the handler of Google Cloud
Logging takes `resource` for the monitored resource.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from sys import modules
from typing import TYPE_CHECKING, Any

from interlock._support.wording import printable
from interlock.events import DEBUG, WARNING, CallbackFailed, Event
from interlock.model import Standing
from interlock.who import Who

if TYPE_CHECKING:
    from logging import Logger

NAME = "interlock"


class Log:
    """A listener that writes each event to the log, and then passes it to the user's own listener, if
    there is one.
    """

    def __init__(self, listener: Callable[[Event], object] | None = None) -> None:
        self._listener = listener

    def __call__(self, event: Event) -> None:
        try:
            # Here and not in `write`: nobody reads most events in the log, and each pair has two.
            logger = _logger
            if logger is None or logger.isEnabledFor(event.level):
                write(event)
        finally:  # the listener gets the event even if a log handler raises
            if self._listener is not None:
                self._listener(event)

    @property
    def wants_all_events(self) -> Callable[[], bool]:
        """Tells whether anybody listens to all events: programs that want warnings only do not pay for making
        others.

        It is called twice for every pair of acquire and release. So it is the logger's own method, unless the
        program has not imported `logging` yet.
        """
        if self._listener is None and (logger := _imported()) is not None:
            return partial(logger.isEnabledFor, DEBUG)
        return self._wants_all_events

    def _wants_all_events(self) -> bool:
        if self._listener is not None:
            return True
        # As `wanted` says, but for calls that every pair would pay for.
        return "logging" in modules and wanted(DEBUG)


def callback_reporter(
    listen: Callable[[Event], object] | None,
) -> Callable[[BaseException, Any], None] | None:
    """Return the function that a runtime calls with the error and the lease when a user's callback has
    failed; None if nobody listens.
    """
    if listen is None:
        return None

    def report(error: BaseException, lease: Any) -> None:
        listen(CallbackFailed(repr(error), lease.resource, error))

    return report


_logger: Logger | None = None


def _imported() -> Logger | None:
    """Our logger; None if the program has not imported `logging`."""
    global _logger
    if _logger is None:
        logging: Any = modules.get("logging")
        if hasattr(logging, "getLogger"):  # otherwise another thread may be importing it
            _logger = logging.getLogger(NAME)
    return _logger


def wanted(level: int) -> bool:
    """Whether the log accepts events of this level.

    If the program has not imported `logging`, it accepts warnings only.
    """
    logger = _imported()
    return level >= WARNING if logger is None else logger.isEnabledFor(level)


def write(event: Event) -> None:
    """Write one event to the log, if the log accepts its level."""
    if not wanted(event.level):
        return
    from logging import getLogger  # here, not above: `import interlock` stays light

    exception: BaseException | None = getattr(event, "exception", None)
    getLogger(NAME).log(event.level, printable(str(event)), extra=fields(event), exc_info=exception)


def fields(event: Event) -> dict[str, object]:
    """Return the data of an event as attributes of a log record: plain values that every formatter can
    write.
    """
    found: dict[str, object] = {"interlock_event": type(event).__name__}
    names: tuple[str, ...] = type(event).__match_args__
    for name in names:
        value = getattr(event, name)
        if isinstance(value, Standing):
            found["interlock_holder_token"] = value.token
            found["interlock_holder_age"] = value.age
            value = str(Who.parse(value.who))
        if name != "exception":  # the log record already has it as exc_info
            found[f"interlock_{name}"] = value
    return found
