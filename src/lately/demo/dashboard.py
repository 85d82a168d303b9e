"""The service beside the demo's pipeline: in a thread of the same process, reachable from this machine only."""

import socket
import threading

from lately.core.errors import InputError, LatelyError
from lately.service import serve

_HOST = "127.0.0.1"
#: The usual port; if it is in use and the user has not chosen a port, any free one is taken.
_DEFAULT_PORT = 8765


class DashboardServer:
    """A port that is checked at once, so that the demo fails early if it is in use, and later the service on it.

    Parameters
    ----------
    port
        The TCP port; None for the usual one, or any free one if that is in use.
    """

    def __init__(self, port: int | None = None) -> None:
        self._chosen_port, self._port = port, _free_port(port)
        self._stop, self._ready = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    @property
    def url(self) -> str:
        """The address of the dashboard."""
        return f"http://{_HOST}:{self._port}/"

    @property
    def started(self) -> bool:
        """Whether ``start`` was called."""
        return self._thread is not None

    def start(self, store: str) -> None:
        """Serve the store at this path; returns once requests are answered."""
        try:
            self._serve(store, self._port)
        except LatelyError:
            if self._chosen_port is not None:
                raise
            self._serve(store, 0)  # another process has taken the port since, and the user has not chosen one

    def _serve(self, store: str, port: int) -> None:
        self._ready.clear()
        self._error = None

        def ready(port: int) -> None:
            self._port = port
            self._ready.set()

        def run() -> None:
            try:
                serve(store, _HOST, port, ready=ready, stop=self._stop)
            except Exception as error:
                self._error = error
            self._ready.set()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Stop the service and disconnect its clients."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10)


def _free_port(port: int | None) -> int:
    """The port, after checking that it is free; for None the default port, or any free one."""
    candidates = (_DEFAULT_PORT, 0) if port is None else (port,)
    for candidate in candidates:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((_HOST, candidate))
            except OSError as error:
                reason = error.strerror
            else:
                return int(trial.getsockname()[1])
    raise InputError(f"port {port} cannot be used: {reason}", remedy="choose another with --port, or leave --port out")
