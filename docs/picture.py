"""Make the picture of the dashboard in the README: ``python docs/picture.py``.

Runs the demo for two minutes, and looks at its page in a headless Chromium shortly after the alarm.
"""

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "service"))

from browser import Browser  # noqa: E402

SECONDS, PORT = 120, 8799
#: Seconds after the alarm, so that it is also seen in the trends.
LATER = 12
#: Larger ones make the README slow.
MOST_BYTES = 300_000


def alarmed() -> bool:
    """Whether the flood of logins has been told."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/api/alerts", timeout=5) as answer:
            rows: list[dict[str, Any]] = json.load(answer)["rows"]
    except OSError:
        return False
    return any(row["monitor"] == "login flood" and row["state"] == "firing" for row in rows)


def wait(demo: "subprocess.Popen[bytes]") -> None:
    """Until the alarm."""
    while not alarmed():
        if demo.poll() is not None:
            sys.exit(f"the demo ended with code {demo.returncode} before its alarm")
        time.sleep(1)


def look(browser: Browser) -> None:
    """Open the page as somebody would have it who wonders about the login."""
    browser.open(f"http://127.0.0.1:{PORT}/")
    browser.wait("document.querySelectorAll('canvas').length > 4")
    browser.choose("#trend-item", "/login")
    browser.fill("#ask-key", "/login")
    browser.fill("#ask input[name=last]", "30s")
    time.sleep(LATER)
    browser.click("#ask button[type=submit]")
    browser.wait("document.querySelector('#answer').children.length > 0")
    browser.run("document.querySelector('#toasts').replaceChildren()")  # they would lie upon the charts
    browser.run("window.scrollTo(0, 0)")
    browser.size(1440, browser.run("document.documentElement.scrollHeight"))
    time.sleep(1)


def main(path: Path = HERE / "dashboard.png") -> None:
    """Run the demo, wait for the alarm, look."""
    command = [sys.executable, "-m", "lately", "demo", "--headless", "--seconds", str(SECONDS), "--port", str(PORT)]
    demo = subprocess.Popen(command)
    try:
        wait(demo)
        with Browser(1440, 1100, dark=True) as browser:
            look(browser)
            browser.shot(path)
            for problem in browser.problems():
                print(f"the page complains: {problem}")
    finally:
        demo.terminate()
        demo.wait()
    print(f"{path}: {path.stat().st_size:,} bytes")
    if path.stat().st_size > MOST_BYTES:
        sys.exit(f"more than {MOST_BYTES:,}: make the window smaller")


if __name__ == "__main__":
    main(*(Path(text) for text in sys.argv[1:2]))
