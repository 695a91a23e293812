"""The SQL of the store, read once from the files beside this one."""

from __future__ import annotations

from interlock._support import package_text


def sections(noun: str) -> dict[str, str]:
    """The statements of one file by name, in the file's order, without their comments."""
    return package_text.sections(package_text.text_beside(__spec__, noun + ".sql"))


CLAIMS = sections("claims")
REGISTERS = sections("registers")
SWEEP = sections("sweep")
