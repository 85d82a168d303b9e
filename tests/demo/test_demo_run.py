"""What a demo refuses before anything starts, and that it leaves nothing behind."""

import re
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import pytest
from cli_cases import assert_refused, run
from patience import PATIENCE
from store_builder import new_store

from lately.core.errors import LatelyError
from lately.demo.dashboard import DashboardServer
from lately.demo.demo_run import Demo

pytestmark = pytest.mark.usefixtures("wide_and_plain")


def test_a_port_that_is_taken_is_told_before_anything_starts():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert_refused(run("demo", "--headless", "--port", port), f"port {port}", "--port")


def test_the_usual_port_may_be_taken():
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8765))
            taken.listen()
        except OSError:
            pass  # it is, by somebody else
        assert not DashboardServer().url.endswith(":8765/")


def test_a_folder_that_is_used_is_not_touched(tmp_path):
    (tmp_path / "mine").write_text("")
    assert_refused(run("demo", "--headless", "--keep", tmp_path), tmp_path, "not empty")
    assert [one.name for one in tmp_path.iterdir()] == ["mine"]


def test_a_folder_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    assert_refused(run("demo", "--keep", tmp_path / "file"), tmp_path / "file", "--keep")


def test_too_short_a_time_is_refused():
    assert_refused(run("demo", "--seconds", 5), "5 seconds", "20")


@pytest.mark.parametrize("missing", ["pyspark", "fastapi", "uvicorn"])
def test_what_is_missing_is_told_in_one_line(missing):
    code = f"""
import sys
sys.modules[{missing!r}] = None
from lately.cli import main
sys.argv = ["lately", "demo"]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.fullmatch(r"lately: .*pip install 'lately\[spark,serve\]'\n", done.stderr), done.stderr


def test_leaving_no_trace():
    with Demo(seconds=None) as demo:
        folder = demo.folder
        assert folder.is_dir()
        assert folder.parent == Path(tempfile.gettempdir())
    assert not folder.exists()


def test_a_port_that_somebody_takes_before_the_service_starts_is_no_trouble(tmp_path):
    store = new_store(tmp_path, name="shop")
    default, chosen = DashboardServer(), DashboardServer(0)
    chosen._chosen_port = chosen._port
    with socket.socket() as one, socket.socket() as two:
        for taken, server in ((one, default), (two, chosen)):
            taken.bind(("127.0.0.1", server._port))
            taken.listen()
        with pytest.raises(LatelyError, match="in use"):
            chosen.start(store.path)
        before = default.url
        default.start(store.path)
    assert default.url != before
    assert urllib.request.urlopen(f"{default.url}api/health", timeout=PATIENCE).status == 200
    default.stop()
