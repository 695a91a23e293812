"""Notices about a server, not about a lease: its version has a known bug, for example.

A program logs them as warnings, each once. The command line holds them back: cron would send mail for every
run of a job that went well. It says them if the command fails, or is asked to say more.
"""

from __future__ import annotations

_held_back: list[str] | None = None


def warn(sentence: str) -> None:
    """Log a sentence, or hold it back."""
    if _held_back is not None:
        _held_back.append(sentence)
        return
    import logging  # here, not above: the command line does without

    logging.getLogger("interlock").warning("%s", sentence)


def hold_back() -> list[str]:
    """From now on, keep all notices in this list."""
    global _held_back
    _held_back = []
    return _held_back
