"""Chromium without a window, spoken to over a pipe: for the test on demand that looks at the page in a browser."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

QUIET = (
    "--headless=new --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --force-color-profile=srgb --remote-debugging-pipe"
).split()


def program() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Page:
    """One tab. Errors of scripts and all requests are kept."""

    def __init__(self, to: int, back: int, patience: float = 60.0) -> None:
        self._to, self._back, self._patience = to, back, patience
        self._unread, self._last, self._session = b"", 0, ""
        self.requests: list[str] = []
        self.errors: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command, and read until its answer."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            told = self._read()
            if told.get("id") == self._last:
                assert "error" not in told, told
                found: dict[str, Any] = told["result"]
                return found

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + self._patience
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._back], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "chromium does not answer"
            part = os.read(self._back, 1 << 20)
            assert part, "chromium has ended"
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\0")
        told: dict[str, Any] = json.loads(line)
        self._note(told)
        return told

    def _note(self, told: dict[str, Any]) -> None:
        about, method = told.get("params", {}), told.get("method")
        if method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(about["exceptionDetails"]))
        elif method == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.errors.append(about["entry"]["text"])

    def size(self, width: int, height: int, scale: float = 1.0, *, mobile: bool = False) -> None:
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=mobile,
        )

    def media(self, scheme: str, media: str = "") -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", media=media, features=features)

    def open(self, url: str) -> None:
        self.ask("Page.navigate", url="about:blank")
        self.ask("Page.navigate", url=url)
        self.until("document.readyState == 'complete' && location.href != 'about:blank'")

    def until(self, fact: str) -> None:
        """Wait for a fact of the page."""
        deadline = time.monotonic() + self._patience
        while not self.run(fact):
            assert time.monotonic() < deadline, f"never true: {fact}"

    def run(self, script: str) -> Any:
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.ask(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                text=key if len(key) == 1 and kind == "keyDown" else "",
            )

    def shot(self, path: Path, *, full: bool = False) -> None:
        """A picture of what is seen, or of the whole page."""
        rest: dict[str, Any] = {}
        if full:
            box = self.ask("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": box["width"], "height": box["height"], "scale": 1}
            rest = {"captureBeyondViewport": True, "clip": clip}
        path.write_bytes(b64decode(self.ask("Page.captureScreenshot", format="png", **rest)["data"]))

    def pdf(self, path: Path) -> None:
        told = self.ask("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        path.write_bytes(b64decode(told["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A chromium of its own, ended with the block."""
    found = program()
    assert found
    orders, to = os.pipe()
    back, answers = os.pipe()

    def as_three_and_four() -> None:
        os.dup2(orders, 13)
        os.dup2(answers, 14)
        os.dup2(13, 3)
        os.dup2(14, 4)

    process = subprocess.Popen(
        [found, *QUIET, f"--user-data-dir={folder}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=as_three_and_four,
        close_fds=False,
    )
    os.close(orders)
    os.close(answers)
    try:
        yield Page(to, back)
    finally:
        os.close(to)
        process.terminate()
        process.wait(30)
        os.close(back)
