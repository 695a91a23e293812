"""Quotas of an ensemble, for tests that use them up."""

from __future__ import annotations

from typing import Any


def set_quota(admin: Any, path: str, count: int) -> None:
    """Permit no more nodes below a path than so many, itself included."""
    place = f"/zookeeper/quota{path}"
    admin.ensure_path(place)
    admin.create(f"{place}/zookeeper_stats", b"count=%d,bytes=1" % (1 + descendants(admin, path)))
    limits = f"count=-1,bytes=-1,byteHardLimit=-1,countHardLimit={count - 1}"
    admin.create(f"{place}/zookeeper_limits", limits.encode())


def descendants(admin: Any, path: str) -> int:
    below = admin.get_children(path)
    return len(below) + sum(descendants(admin, f"{path}/{name}") for name in below)
