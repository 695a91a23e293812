"""Reads the scripts and the SQL that stand in files beside the modules."""

from __future__ import annotations

import os
from typing import Any


def text_beside(spec: Any, name: str) -> str:
    """The text of a file beside the module with this `__spec__`.

    It is not opened: the package may have been imported from a zip file, which also knows no `..`.
    """
    path = os.path.normpath(os.path.join(os.path.dirname(spec.origin), name))
    data: bytes = spec.loader.get_data(path)
    return data.decode("utf-8")


def sections(text: str) -> dict[str, str]:
    """The statements of a file by the names in its lines `-- name: …`, in its order, without comments."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("-- name: "):
            lines = found[line.removeprefix("-- name: ").strip()] = []
        elif line.strip() and not line.startswith("--"):
            lines.append(line)
    return {name: "\n".join(lines).rstrip(";") for name, lines in found.items()}
