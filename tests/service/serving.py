"""The real server in a thread of its own, and a client of it."""

import queue
import threading
from contextlib import contextmanager

import httpx
from patience import PATIENCE

from lately.service import create_app
from lately.service.server import open_socket, run


@contextmanager
def serving(store, **options):
    """A client of the service over a store; the server has stopped afterwards, whoever was still listening."""
    app = create_app(store, **options)
    ports, stop = queue.Queue(), threading.Event()
    server = threading.Thread(target=run, args=[app, open_socket("127.0.0.1", 0)], kwargs={"ready": ports.put, "stop": stop})
    server.start()
    try:
        url = f"http://127.0.0.1:{ports.get(timeout=PATIENCE)}"
        with httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False) as client:
            yield client
    finally:
        stop.set()
        server.join(timeout=PATIENCE)
    assert not server.is_alive()
