"""Chromium without a window, driven over its debugging pipe: for tests of HTML files, and to look at them.

    with Browser() as browser:
        page = browser.open(path)
        page.evaluate("document.title")

`python -m tests.support.browser FILE.html OUT.png [--dark] [--hash ID] [--script JS] [--height N]` takes a
picture."""

from __future__ import annotations

import argparse
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SECONDS = 40.0


class Browser:
    """A browser process with a profile of its own, ended with the block."""

    def __init__(self, width: int = 1366, height: int = 768) -> None:
        assert CHROMIUM is not None, "chromium is not installed"
        self._profile = tempfile.mkdtemp(prefix="stripec-browser-")
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # The browser reads from 3 and writes to 4; ours may have these numbers already.
        command = f'exec 9<&{to_read} 8>&{to_write} 3<&9 4>&8; exec "$0" "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", command, CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu",
             "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={self._profile}",
             f"--window-size={width},{height}", "about:blank"],
            pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._size = width, height
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._profile, ignore_errors=True)

    def send(
        self, method: str, parameters: dict[str, Any] | None = None, session: str = ""
    ) -> dict[str, Any]:
        """Call a method of the protocol and wait for its answer; events that come before it are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        for found in self._messages():
            if found.get("id") == self._number:
                assert "error" not in found, f"{method}: {found['error']}"
                return dict(found["result"])
            self.events.append(found)
        raise AssertionError(f"the browser did not answer {method}")

    def _messages(self) -> Iterator[dict[str, Any]]:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            while b"\0" in self._buffer:
                line, _, self._buffer = self._buffer.partition(b"\0")
                yield json.loads(line)
            if select.select([self._read], [], [], 0.5)[0]:
                more = os.read(self._read, 1 << 20)
                assert more, "the browser ended"
                self._buffer += more

    def open(self, path: Path, *, dark: bool = False, fragment: str = "") -> Page:
        """A page with this file, loaded."""
        target = self.send("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.send(f"{domain}.enable")
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.send("Emulation.setEmulatedMedia", {"features": [feature]})
        width, height = self._size
        page.send(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        page.send("Page.navigate", {"url": path.resolve().as_uri() + (f"#{fragment}" if fragment else "")})
        for _ in range(int(SECONDS * 20)):
            if (
                page.evaluate("document.readyState") == "complete"
                and page.evaluate("location.href") != "about:blank"
            ):
                break
            time.sleep(0.05)
        return page


class Page:
    """A tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def send(self, method: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._browser.send(method, parameters, self._session)

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.send(
            "Runtime.evaluate", {"expression": script, "returnByValue": True, "awaitPromise": True}
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def key(self, key: str, text: str = "") -> None:
        """Press a key."""
        down: dict[str, Any] = {"type": "keyDown", "key": key} | (
            {"text": text or key} if len(key) == 1 else {}
        )
        self.send("Input.dispatchKeyEvent", down)
        self.send("Input.dispatchKeyEvent", {"type": "keyUp", "key": key})

    def picture(self) -> bytes:
        """What is visible, as a PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot", {"format": "png"})["data"])

    def pdf(self) -> bytes:
        """The page in print."""
        parameters = {"printBackground": True, "paperWidth": 8.27, "paperHeight": 11.69}
        return base64.b64decode(self.send("Page.printToPDF", parameters)["data"])

    def errors(self) -> list[str]:
        """What went wrong since the page was opened: exceptions, errors on the console, refused resources."""
        found = []
        for event in self._browser.events:
            method, data = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(str(data["exceptionDetails"]))
            elif method == "Runtime.consoleAPICalled" and data["type"] in ("error", "warning", "assert"):
                found.append(str(data["args"]))
            elif method == "Log.entryAdded" and data["entry"]["level"] in ("error", "warning"):
                found.append(str(data["entry"]))
        return found

    def requests(self) -> list[str]:
        """The addresses that were asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self._browser.events if event.get("method") == "Network.requestWillBeSent"
        ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="take a picture of an HTML file")
    parser.add_argument("file", type=Path)
    parser.add_argument("out", type=Path, help="a .png or a .pdf")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--hash", default="")
    parser.add_argument("--script", default="", help="what to run before")
    parser.add_argument("--width", type=int, default=1366)
    parser.add_argument("--height", type=int, default=768)
    given = parser.parse_args()
    with Browser(given.width, given.height) as browser:
        page = browser.open(given.file, dark=given.dark, fragment=given.hash)
        if given.script:
            page.evaluate(given.script)
        time.sleep(0.3)
        given.out.write_bytes(page.pdf() if given.out.suffix == ".pdf" else page.picture())
        for error in page.errors():
            print(error)


if __name__ == "__main__":
    main()
