"""A headless Chromium, driven through its own protocol over a pipe: one page at a time, and all that it complains of.

Nothing but the browser is needed. Messages are JSON, each closed by a zero byte, on the descriptors 3 and 4 of the
browser (``--remote-debugging-pipe``).
"""

from __future__ import annotations

import base64
import io
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

__all__ = ["Box", "Browser", "chromium"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# Chromium refuses to run as root with a sandbox, and containers have a small /dev/shm.
FLAGS = [f"--{flag}" for flag in "headless=new remote-debugging-pipe no-sandbox disable-dev-shm-usage".split()]
FLAGS += [f"--disable-{what}" for what in "gpu extensions component-update background-networking".split()]
FLAGS += ["--no-first-run", "--hide-scrollbars"]
# Descriptors are numbered by this process; the browser expects 3 and 4.
_MOVE = "import os, sys; a, b, *c = sys.argv[1:]; os.dup2(int(a), 3); os.dup2(int(b), 4); os.execv(c[0], c)"
SECONDS = 60
"""For any answer: the first start of a browser on a busy machine takes several seconds."""

Box: TypeAlias = dict[str, float]


def chromium() -> str:
    """The path of an installed browser, "" if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), "")


class Browser:
    """A browser with one empty tab, as a context manager.

    Attributes:
        events: what the tab reported since the last `open`.
    """

    def __init__(self, program: str, profile: Path) -> None:
        there, self._to = _pipe()
        self._from, back = _pipe()
        here = [sys.executable, "-c", _MOVE, str(there), str(back)]
        none = subprocess.DEVNULL
        self._process = subprocess.Popen(
            [*here, program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(there, back), stdin=none, stdout=none, stderr=none, start_new_session=True,
        )  # fmt: skip
        os.close(there)
        os.close(back)
        self._number, self._session, self._pending = 0, "", b""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events on the way are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive(method)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _receive(self, what: str) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        parts = [self._pending]
        while b"\0" not in parts[-1]:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            parts.append(os.read(self._from, 1 << 20) if ready else b"")
            assert parts[-1], f"the browser gave no answer to {what} within {SECONDS} s, or ended"
        first, _, self._pending = b"".join(parts).partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message

    def show(self, url: str, width: int, height: int = 900, scheme: str = "light", media: str = "screen") -> None:
        """Open an address in a window of that size, and wait until it is loaded."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)
        window = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **window)
        self.call("Page.navigate", url="about:blank")
        self.evaluate("0")
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive("the load event"))
        # Two frames later everything is painted, and what it had to complain of is said.
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def boxes(self, selector: str) -> list[Box]:
        """Where elements are on the page, in CSS pixels."""
        found: list[Box] = self.evaluate(
            f"[...document.querySelectorAll({json.dumps(selector)})].map(e => {{ const r = e.getBoundingClientRect();"
            "return {x: r.x + scrollX, y: r.y + scrollY, width: r.width, height: r.height}; })"
        )
        return found

    def picture(self) -> npt.NDArray[np.uint8]:
        """A screenshot of the whole page: uint8[H,W,3]{HWC}."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, optimizeForSpeed=True)
        with Image.open(io.BytesIO(base64.b64decode(answer["data"]))) as image:
            return np.asarray(image.convert("RGB"))

    def requests(self) -> list[str]:
        """Addresses that the page asked for since it was opened, other than its own and those within it."""
        sent = [event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent"]
        asked = [one["request"]["url"] for one in sent if one.get("type") != "Document"]
        return [url for url in asked if not url.startswith("data:")]

    def complaints(self) -> list[str]:
        """What the browser's console and its list of issues say of the page."""
        kinds = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Audits.issueAdded")
        return [json.dumps(event["params"]) for event in self.events if event["method"] in kinds]


def _pipe() -> tuple[int, int]:
    """The two ends of a pipe, numbered above those that the browser expects."""
    import fcntl

    ends = os.pipe()
    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return moved[0], moved[1]
