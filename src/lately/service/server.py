"""Runs the app on uvicorn until Ctrl-C or a stop event, also while clients are connected to the event stream."""

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
from lately.service.security import is_loopback

#: Seconds that running requests have to finish when the server stops.
_SHUTDOWN_TIMEOUT = 5


def serve(
    store: str,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    *,
    ready: Callable[[int], None] | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Serve a store until Ctrl-C, or until ``stop`` is set.

    Parameters
    ----------
    store
        The path of the store.
    host
        The address to listen on. One that other machines can reach needs a token.
    port
        The TCP port; 0 takes any free one.
    token
        The token that every request must carry, 8 to 512 printable ASCII characters; None for none.
    ready
        Is called with the port once the server accepts requests.
    stop
        Stops the server when it is set. In a thread other than the main one it is the only way, as signals do not arrive there.
    """
    if not 0 <= port <= 65_535:
        raise ParameterError(f"port={port} is not a TCP port", remedy="give one from 1 to 65535, or 0 for any free one")
    app = create_app(store, token=token, loopback=is_loopback(host))
    run(app, open_socket(host, port), ready=ready, stop=stop)


def run(
    app: FastAPI,
    listener: socket.socket,
    *,
    ready: Callable[[int], None] | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Serve an app that ``create_app`` made on a listening socket, which is closed at the end.

    Parameters
    ----------
    app
        The app.
    listener
        The socket.
    ready, stop
        As in ``serve``.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT,
        # Clients' addresses are not used, and any client can send a header that claims one.
        proxy_headers=False,
    )
    try:
        _Server(config, app.state.broadcaster.disconnect_all, ready, stop).run([listener])
    except KeyboardInterrupt:  # uvicorn raises it again after its shutdown
        pass
    finally:
        listener.close()


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that listens on an address of this machine.

    Parameters
    ----------
    host
        A name or an address.
    port
        The TCP port; 0 takes any free one.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        remedy = "give an address of this machine, such as 127.0.0.1"
        raise InputError(f"host={host!r}: {error.strerror}", remedy=remedy) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            remedy = "choose another with --port, or any free one with --port 0"
            raise InputError(f"port {port} of {host} is in use", remedy=remedy) from error
        remedy = "choose another address with --host and --port"
        raise InputError(f"cannot listen on port {port} of {host}: {error.strerror}", remedy=remedy) from error
    return listener


class _Server(uvicorn.Server):
    """uvicorn with a callback when it is ready and a stop event; its shutdown does not wait for event streams to end."""

    def __init__(
        self,
        config: uvicorn.Config,
        disconnect_all: Callable[[], None],
        ready: Callable[[int], None] | None,
        stop: threading.Event | None,
    ) -> None:
        super().__init__(config)
        self._disconnect_all, self._ready, self._stop = disconnect_all, ready, stop

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started and self._ready is not None:
            port = sockets[0].getsockname()[1]
            # The callback may open a browser or print; requests are answered meanwhile.
            await asyncio.get_running_loop().run_in_executor(None, self._ready, port)

    async def on_tick(self, counter: int) -> bool:
        stopped = self._stop is not None and self._stop.is_set()
        return stopped or await super().on_tick(counter)

    async def shutdown(self, sockets: Any = None) -> None:
        self._disconnect_all()
        await super().shutdown(sockets)
