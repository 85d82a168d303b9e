"""The server as people start it: ports, hosts, signals."""

import os
import queue
import signal
import subprocess
import sys
import threading

import httpx
import pytest
from patience import PATIENCE

from lately.core.errors import InputError, ParameterError
from lately.service import serve
from lately.service.server import open_socket

START = """
import sys
from lately.service import serve
from lately.core.errors import LatelyError
try:
    serve(sys.argv[1], port=int(sys.argv[2]), ready=lambda port: print(port, flush=True))
except LatelyError as error:
    print(error)
    sys.exit(1)
print("stopped")
"""


def start(store, port):
    command = [sys.executable, "-W", "error", "-c", START, store, str(port)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_process_that_serves_until_ctrl_c(shop_path):
    first = start(shop_path, 0)
    try:
        port = int(first.stdout.readline())
        url = f"http://127.0.0.1:{port}"
        assert httpx.get(f"{url}/api/count?key=/cart", trust_env=False, timeout=PATIENCE).json()["estimate"]["value"] == 5
        taken = start(shop_path, port)
        out, err = taken.communicate(timeout=PATIENCE)
        assert (taken.returncode, err) == (1, "")
        assert out == f"port {port} of 127.0.0.1 is in use; choose another with --port, or any free one with --port 0\n"
        with httpx.stream("GET", f"{url}/api/stream", trust_env=False, timeout=PATIENCE) as answer:
            assert next(answer.iter_lines()).startswith("retry")
            os.kill(first.pid, signal.SIGINT)
            out, err = first.communicate(timeout=PATIENCE)
        assert (first.returncode, out, err) == (0, "stopped\n", "")
    finally:
        first.kill()
        first.wait()


def test_in_a_thread_it_stops_when_told(shop_path):
    ports, stop = queue.Queue(), threading.Event()
    options = {"ready": ports.put, "stop": stop}
    thread = threading.Thread(target=serve, args=[shop_path, "localhost", 0], kwargs=options)
    thread.start()
    port = ports.get(timeout=PATIENCE)
    assert httpx.get(f"http://localhost:{port}/api/health", trust_env=False, timeout=PATIENCE).status_code == 200
    with pytest.raises(InputError, match="in use"):
        serve(shop_path, "localhost", port)
    stop.set()
    thread.join(timeout=PATIENCE)
    assert not thread.is_alive()
    open_socket("localhost", port).close()  # it is free again


def test_addresses_that_cannot_be(shop_path):
    with pytest.raises(ParameterError, match="LATELY_TOKEN"):
        serve(shop_path, "0.0.0.0", 0)
    with pytest.raises(InputError, match="such as 127"):
        serve(shop_path, "no.such.host.invalid", 0, "correct-horse-battery")
    with pytest.raises(InputError, match="choose another address with --host and --port"):
        serve(shop_path, "192.0.2.1", 0, "correct-horse-battery")
    with pytest.raises(ParameterError, match="from 1 to 65535"):
        serve(shop_path, port=65_536)
