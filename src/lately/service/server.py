"""A server that runs the app until it is told to stop, also while somebody listens."""

import asyncio
import errno
import socket
import threading
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI

from lately.core.errors import InputError, ParameterError
from lately.service.app import create_app
from lately.service.guard import is_loopback

#: Seconds that requests have to end once the server is told to.
_GRACE = 5


def serve(
    store: str,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    *,
    ready: Callable[[int], None] | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Serve a store until Ctrl-C, or until ``stop`` is set; ``ready`` is called with the port once there are answers.

    Port 0 takes any that is free. In a thread other than the main one there are no signals, so ``stop`` is the only way out.
    Hosts that others can reach need a token.
    """
    if not 0 <= port <= 65_535:
        raise ParameterError(f"port={port}: give one from 1 to 65535, or 0 for any that is free")
    app = create_app(store, token=token, loopback=is_loopback(host))
    run(app, listen(host, port), ready=ready, stop=stop)


def run(
    app: FastAPI,
    listening: socket.socket,
    *,
    ready: Callable[[int], None] | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Serve an app of ours on a socket that listens already."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=_GRACE,
        # Who is behind a proxy is nobody's business here, and a header that anyone can send is not trusted.
        proxy_headers=False,
    )
    try:
        _Server(config, app.state.live.dismiss, ready, stop).run([listening])
    except KeyboardInterrupt:  # sent again by uvicorn, after all is closed
        pass
    finally:
        listening.close()


def listen(host: str, port: int) -> socket.socket:
    """A socket on an address of this machine, or why there can be none."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InputError(f"host={host!r}: {error.strerror}; give an address of this machine, such as 127.0.0.1") from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(2048)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            raise InputError(f"port {port} of {host} is taken; choose another with --port, or any with --port 0") from error
        raise InputError(f"port {port} of {host}: {error.strerror}; choose others with --host and --port") from error
    return made


class _Server(uvicorn.Server):
    """uvicorn, which says when it is ready, can be stopped from another thread, and does not wait for listeners."""

    def __init__(
        self,
        config: uvicorn.Config,
        dismiss: Callable[[], None],
        ready: Callable[[int], None] | None,
        stop: threading.Event | None,
    ) -> None:
        super().__init__(config)
        self._dismiss, self._ready, self._stop = dismiss, ready, stop

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started and self._ready is not None:
            port = sockets[0].getsockname()[1]
            # It may open a browser or print; neither should hold up answers.
            await asyncio.get_running_loop().run_in_executor(None, self._ready, port)

    async def on_tick(self, counter: int) -> bool:
        stopped = self._stop is not None and self._stop.is_set()
        return stopped or await super().on_tick(counter)

    async def shutdown(self, sockets: Any = None) -> None:
        self._dismiss()
        await super().shutdown(sockets)
