"""The SQL of the store, read once from the files beside this one."""

from __future__ import annotations

import os
from typing import Any


def sections(noun: str) -> dict[str, str]:
    """The statements of one file by name, in the file's order, without their comments."""
    loader: Any = __spec__.loader  # not open(): the package may have been imported from a zip file
    path = os.path.join(os.path.dirname(__file__), noun + ".sql")
    found: dict[str, list[str]] = {}
    name = ""
    for line in loader.get_data(path).decode("utf-8").splitlines():
        if line.startswith("-- name: "):
            name = line.removeprefix("-- name: ").strip()
            found[name] = []
        elif name and line.strip() and not line.startswith("--"):
            found[name].append(line)
    return {name: "\n".join(lines).rstrip(";") for name, lines in found.items()}


CLAIMS = sections("claims")
REGISTERS = sections("registers")
SWEEP = sections("sweep")
