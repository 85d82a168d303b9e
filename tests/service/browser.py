"""A real Chromium without a window, driven over its DevTools protocol: what tests of a page need of a browser, and no more."""

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from patience import PATIENCE, wait_until
from websockets.sync.client import connect

FLAGS = (
    "--headless=new",
    "--no-sandbox",  # as root, which CI is, Chromium does not start with it
    "--disable-gpu",
    "--disable-dev-shm-usage",  # containers have little of it
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
    "--remote-debugging-port=0",
)
NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """Where Chromium is; Debian's is installed if it is missing and we may."""
    for name in NAMES:
        if executable := shutil.which(name):
            return executable
    if os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "update", "-qq"], check=True, capture_output=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", "chromium"], check=True, capture_output=True)
        if executable := shutil.which("chromium"):
            return executable
    raise RuntimeError("the page is tested in a real browser and there is none; install it: apt-get install chromium")


class Browser:
    """One browser with one page. What the page logged and asked for is kept in ``events``.

    ``wait`` and ``run`` take JavaScript; a promise is awaited.
    """

    def __init__(self, width: int = 1440, height: int = 1000, dark: bool = True) -> None:
        self._folder = tempfile.mkdtemp(prefix="lately-page-")
        command = [chromium(), *FLAGS, f"--user-data-dir={self._folder}", f"--window-size={width},{height}", "about:blank"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        self.events: list[dict[str, Any]] = []
        self._asked = 0
        self._open = ExitStack()
        try:
            self._socket = self._open.enter_context(connect(self._address(), max_size=None, open_timeout=PATIENCE))
            self._session: str | None = None
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                self.call(f"{domain}.enable")
            self.size(width, height)
            self.prefer("dark" if dark else "light")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _address(self) -> str:
        """The browser writes where it listens into a file, as soon as it does."""
        port_file = Path(self._folder, "DevToolsActivePort")

        def lines() -> list[str] | None:
            if self._process.poll() is not None:
                raise RuntimeError(f"Chromium ended at once, with {self._process.returncode}")
            parts = port_file.read_text().splitlines() if port_file.exists() else []
            return parts if len(parts) == 2 else None

        port, path = wait_until(lines, lambda: "Chromium has not started")
        return f"ws://127.0.0.1:{port}{path}"

    def call(self, method: str, **values: Any) -> dict[str, Any]:
        """One command of the protocol, and its answer. Events that come meanwhile are kept."""
        self._asked += 1
        message: dict[str, Any] = {"id": self._asked, "method": method, "params": values}
        if self._session is not None:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            incoming = json.loads(self._socket.recv(timeout=PATIENCE))
            if incoming.get("id") == self._asked:
                if "error" in incoming:
                    raise RuntimeError(f"{method}: {incoming['error']['message']}")
                result: dict[str, Any] = incoming["result"]
                return result
            if "method" in incoming:
                self.events.append(incoming)

    def open(self, url: str) -> None:
        """Go to a page. The one before is gone then; whether the new one is ready is for ``wait`` to say."""
        self._leave("Page.navigate", url=url)

    def reload(self) -> None:
        """The same page anew."""
        self._leave("Page.reload")

    def _leave(self, method: str, **values: Any) -> None:
        self.run("window.leaving = true")
        self.call(method, **values)
        self.wait("!window.leaving")

    @contextmanager
    def holding(self, *patterns: str) -> Iterator[Callable[[], list[str]]]:
        """Hold back what the page asks for at addresses of these patterns; gives a function that lists what is held."""
        start = len(self.events)

        def paused() -> list[dict[str, Any]]:
            self.run("0")  # so that what came since is read
            return [event["params"] for event in self.events[start:] if event["method"] == "Fetch.requestPaused"]

        self.call("Fetch.enable", patterns=[{"urlPattern": pattern} for pattern in patterns])
        try:
            yield lambda: [one["request"]["url"] for one in paused()]
        finally:
            try:
                for request in paused():
                    try:
                        self.call("Fetch.continueRequest", requestId=request["requestId"])
                    except RuntimeError as error:  # a page that was left, or gave up waiting, has cancelled it
                        if "Invalid InterceptionId" not in str(error):
                            raise
            finally:
                self.call("Fetch.disable")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        response = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in response:
            details = response["exceptionDetails"]
            raise RuntimeError(f"{script}: {details.get('exception', {}).get('description', details['text'])}")
        return response["result"].get("value")

    def wait(self, script: str) -> Any:
        """The value of an expression once it is true; a page that is not ready yet is asked again."""
        trouble: object = None

        def value() -> Any:
            nonlocal trouble
            try:
                return self.run(script)
            except RuntimeError as error:
                trouble = error

        return wait_until(value, lambda: f"{script} ({trouble}); problems: {self.problems()}", pause=0.1)

    def see(self, selector: str, drawn: str = "canvas") -> None:
        """Scroll to an element until it holds what it draws when it is seen; the page above it may grow meanwhile."""
        self.wait(
            f"(found => {{ found.scrollIntoView({{block: 'center'}}); return !!found.querySelector({json.dumps(drawn)}); }})"
            f"(document.querySelector({json.dumps(selector)}))"
        )

    def box(self, selector: str) -> tuple[float, float, float, float]:
        """Where an element is, once it is in sight and the page has come to rest: x, y, width and height."""
        x, y, width, height = self.run(
            f"(async () => {{ const found = document.querySelector({json.dumps(selector)});"
            " found.scrollIntoView({block: 'center'});"
            " for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);"
            " const box = found.getBoundingClientRect(); return [box.x, box.y, box.width, box.height]; })()"
        )
        return x, y, width, height

    def click(self, selector: str) -> None:
        """A click of the mouse in the middle of an element, so that what lies above it would get it."""
        x, y, width, height = self.box(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x + width / 2, y=y + height / 2, button="left", clickCount=1)

    def drag(self, selector: str, start: float, stop: float) -> None:
        """Press at one share of an element's width, release at another."""
        x, y, width, height = self.box(selector)
        path = [start + (stop - start) * step / 8 for step in range(9)]
        points = [{"x": x + width * share, "y": y + height / 2, "button": "left"} for share in path]
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=points[0]["x"], y=points[0]["y"])
        self.call("Input.dispatchMouseEvent", type="mousePressed", clickCount=1, **points[0])
        for point in points:
            self.call("Input.dispatchMouseEvent", type="mouseMoved", buttons=1, **point)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", clickCount=1, **points[-1])

    def fill(self, selector: str, text: str) -> None:
        """Type into a field, in place of what it holds."""
        self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.focus(); e.select?.(); }})()")
        self.call("Input.insertText", text=text)

    def choose(self, selector: str, value: str) -> None:
        """Pick an option of a list."""
        self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.value = {json.dumps(value)};"
            " e.dispatchEvent(new Event('change', {bubbles: true})); })()"
        )

    def size(self, width: int, height: int, phone: bool = False) -> None:
        """How large the page's window is; a phone's has two dots to a pixel and is touched."""
        self._shape = width, height, phone
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)

    def prefer(self, scheme: str) -> None:
        """What the system says that its user likes: ``dark`` or ``light``."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def shot(self, path: Path, whole: bool = True) -> None:
        """A picture of the page as PNG: of the whole, in a window as high as that needs, or of what is in sight."""
        shape = self._shape
        if whole:
            self.size(shape[0], self.run("document.documentElement.scrollHeight"), shape[2])
            self.run("new Promise((done) => setTimeout(done, 600))")  # for what is drawn only once it is seen
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
        self.size(*shape)

    def problems(self) -> list[str]:
        """What the page complained about: errors, warnings, broken promises, what the security policy refused."""
        self.run("0")  # so that what came since is read
        complaints = []
        for event in self.events:
            params = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                complaints.append(details.get("exception", {}).get("description", details["text"]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                complaints.append(" ".join(str(one.get("value", one.get("description"))) for one in params["args"]))
        return complaints

    def requests(self) -> list[str]:
        """Every address that the page asked for."""
        self.run("0")
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    def close(self) -> None:
        """End the browser and all of its processes, and remove its folder."""
        self._open.close()
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
