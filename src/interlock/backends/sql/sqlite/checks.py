"""Checks where a lock file lies."""

from __future__ import annotations

import os
import shutil

from interlock.backends.kit.examining import Examiner
from interlock.backends.sql.sqlite.file.location import NETWORK, filesystem

CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")
LITTLE_BYTES = 16 << 20


def examine(path: str, wakes: bool, examiner: Examiner) -> None:
    """Note what the place of the file means for locks; nothing is opened."""
    folder = os.path.dirname(path)
    _check_filesystem(folder, examiner)
    _check_space(folder, examiner)
    if not wakes:
        told = "this system has no datagram sockets for doorbells: waiters look at the file again and again"
        examiner.add("wake-ups", "note", told)
    examiner.expect("the holder's process dies", "yes", "yes", "not at all")
    examiner.expect("the machine restarts", "yes", "yes", "not at all: every holder is gone")
    examiner.expect("the clock of the machine jumps", "yes", "yes", "not at all")
    examiner.expect("the disk is full", "yes", "yes", "until there is space; releases still work")
    examiner.expect("the file is deleted or replaced", "yes", "no", "not at all")


def _check_filesystem(folder: str, examiner: Examiner) -> None:
    """sqlite-filesystem: on a network filesystem, programs of two machines may both hold a lock."""
    kind = filesystem(folder)
    if kind in NETWORK:
        examiner.add(
            "sqlite-filesystem",
            "danger",
            f"the file lies on a network filesystem ({kind}): programs of two machines may both hold a lock",
            "a file on a local disk, or a server, where several machines must exclude each other",
        )
    elif any(os.path.exists(mark) for mark in CONTAINER_MARKS):
        examiner.add(
            "sqlite-filesystem",
            "note",
            "this process runs in a container: programs of other containers share these locks only over the "
            "same volume, and a dead holder there blocks for its ttl",
        )
    elif kind:
        examiner.add("sqlite-filesystem", "good", f"the file lies on a local disk ({kind})")
    else:
        examiner.add("sqlite-filesystem", "unknown", "the system does not tell on what disk the file lies")


def _check_space(folder: str, examiner: Examiner) -> None:
    """sqlite-space: on a full disk no lock is granted."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        examiner.add("sqlite-space", "unknown", f"the free space is not known: {error.strerror}")
        return
    told = f"{free >> 20} MiB are free on its disk"
    if free < LITTLE_BYTES:
        examiner.add("sqlite-space", "warning", f"{told}: when none is, no lock is granted")
    else:
        examiner.add("sqlite-space", "good", told)
