"""Asks a server over keep-alive connections as fast as it answers, and says how long each answer took. Runs as its own process:

python -m bench.service_load PORT CONNECTIONS SECONDS CORE < requests.json
"""

import asyncio
import json
import os
import random
import sys
from time import perf_counter
from typing import Any

HEAD = b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


class Asker(asyncio.Protocol):
    """One connection: the next request goes out when the last answer is whole."""

    def __init__(self, requests: list[bytes], until: float, done: asyncio.Future[None]) -> None:
        self._requests, self._until, self._done = requests, until, done
        self.seconds: list[float] = []
        self.failed = 0
        self._answer, self._next = b"", random.randrange(len(requests))

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, blank, body = self._answer.partition(b"\r\n\r\n")
        if not blank or len(body) < int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]):
            return
        now = perf_counter()
        self.seconds.append(now - self._asked)
        self.failed += not self._answer.startswith(b"HTTP/1.1 200")
        if now < self._until:
            self._ask()
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._done.set_result(None)

    def _ask(self) -> None:
        self._answer, self._next = b"", (self._next + 1) % len(self._requests)
        self._asked = perf_counter()
        self._transport.write(self._requests[self._next])


async def load(port: int, connections: int, seconds: float, paths: list[str]) -> dict[str, Any]:
    """Keep so many connections busy for so long."""
    loop = asyncio.get_running_loop()
    requests = [HEAD % path.encode() for path in paths]
    start = perf_counter()
    futures = [loop.create_future() for _ in range(connections)]
    askers = [Asker(requests, start + seconds, future) for future in futures]
    for asker in askers:
        await loop.create_connection(lambda asker=asker: asker, "127.0.0.1", port)
    await asyncio.wait_for(asyncio.gather(*futures), timeout=seconds + 30)
    took = perf_counter() - start
    times = sorted(second for asker in askers for second in asker.seconds)
    return {
        "answers": len(times),
        "failed": sum(asker.failed for asker in askers),
        "rate": len(times) / took,
        "p50": times[len(times) // 2],
        "p99": times[len(times) * 99 // 100],
    }


if __name__ == "__main__":
    if int(sys.argv[4]) >= 0:
        os.sched_setaffinity(0, [int(sys.argv[4])])
    runner = asyncio.run
    try:
        import uvloop

        runner = uvloop.run
    except ImportError:
        pass
    print(json.dumps(runner(load(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), json.load(sys.stdin)))))
