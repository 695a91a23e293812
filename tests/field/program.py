"""A process of its own with a client, told line by line what to do; answers each line with one of JSON.

    python program.py sync|async URL [default ttl]

A line is a JSON string of Python statements, which may await; the value of a last expression is the answer. The same
text works under both faces: `lease = await got(client.lock("x").acquire())`.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import signal
import sys
import threading
import time
from inspect import CO_COROUTINE
from types import FunctionType
from typing import Any

import interlock
from interlock import aio
from interlock._core.drive import drive
from interlock.testing.conformance import ask, each, got, within

KNOWN = {
    "interlock": interlock,
    "aio": aio,
    "got": got,
    "within": within,
    "ask": ask,
    "each": each,
    "os": os,
    "sys": sys,
    "time": time,
    "threading": threading,
    "asyncio": asyncio,
    "signal": signal,
}


async def run(text: str, names: dict[str, Any]) -> Any:
    tree = ast.parse(text)
    if isinstance(tree.body[-1], ast.Expr):
        tree.body[-1] = ast.copy_location(
            ast.Assign([ast.Name("_", ast.Store())], tree.body[-1].value), tree.body[-1]
        )
    names["_"] = None
    code = compile(ast.fix_missing_locations(tree), "told", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    done = FunctionType(code, names)()
    if code.co_flags & CO_COROUTINE:
        await done
    return names["_"]


async def listen(names: dict[str, Any], asynchronous: bool) -> None:
    loop = asyncio.get_running_loop() if asynchronous else None
    while True:
        line = await loop.run_in_executor(None, sys.stdin.readline) if loop else sys.stdin.readline()
        if not line:
            return
        try:
            said = {"ok": await run(json.loads(line), names)}
        except Exception as error:
            said = {"error": type(error).__name__, "text": str(error)}
        print(json.dumps(said, default=repr), flush=True)


def main() -> None:
    face, url, *rest = sys.argv[1:]
    ttl = float(rest[0]) if rest else 30.0
    if face == "sync":
        drive(listen({**KNOWN, "client": interlock.connect(url, ttl=ttl)}, False))
        return

    async def within_a_loop() -> None:
        await listen({**KNOWN, "client": aio.connect(url, ttl=ttl)}, True)

    asyncio.run(within_a_loop())


if __name__ == "__main__":
    main()
