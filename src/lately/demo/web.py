"""The service beside a pipeline: in a thread of the same process, on this machine only."""

import socket
import threading

from lately.core.errors import InputError, LatelyError
from lately.service import serve

_HOST = "127.0.0.1"
#: Where people look first; if it is taken and nobody asked for it, any other will do.
_USUAL = 8765


class Web:
    """A port that is tried at once, so that a taken one is told before anything begins; later the service on it."""

    def __init__(self, port: int | None = None) -> None:
        self._asked, self._port = port, _free(port)
        self._stop, self._ready = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self._port}/"

    @property
    def started(self) -> bool:
        return self._thread is not None

    def start(self, store: str) -> None:
        """Serve a store; returns when there are answers."""
        try:
            self._serve(store, self._port)
        except LatelyError:
            if self._asked is not None:
                raise
            self._serve(store, 0)  # somebody else was faster, and any will do

    def _serve(self, store: str, port: int) -> None:
        self._ready.clear()
        self._failure = None

        def ready(port: int) -> None:
            self._port = port
            self._ready.set()

        def run() -> None:
            try:
                serve(store, _HOST, port, ready=ready, stop=self._stop)
            except Exception as error:
                self._failure = error
            self._ready.set()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End the service; who still listens is sent away."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10)


def _free(port: int | None) -> int:
    """The port, if it is free; without one the usual, or any."""
    wanted = (_USUAL, 0) if port is None else (port,)
    for one in wanted:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((_HOST, one))
            except OSError as error:
                reason = error.strerror
            else:
                return int(trial.getsockname()[1])
    raise InputError(f"port {port} cannot be used: {reason}; choose another with --port, or none")
