"""The event stream: new batches and alerts, what a client missed when it reconnects, and an end when the server stops."""

import asyncio
import json
import threading

import httpx
import pytest
import stores
from patience import PATIENCE, wait_until
from serving import serving
from store_builder import NOON, RUN, put_batch, put_sketches

from lately.service.broadcast import _MAX_CLIENTS, _MAX_WAITING, Broadcaster
from lately.service.metrics import Metrics
from lately.store.view import View


@pytest.fixture
def store(tmp_path):
    return stores.shop(tmp_path / "store")


def events(answer, count):
    """The next events of a stream, as (event, id, data)."""
    received, fields = [], {}
    for line in answer.iter_lines():
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
            continue
        if "event" in fields:
            received.append((fields["event"], fields.get("id"), json.loads(fields["data"])))
        fields = {}
        if len(received) == count:
            return received
    return received


def test_a_batch_and_its_alert_are_pushed(store):
    with serving(store.path) as client, client.stream("GET", "/api/stream") as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["x-accel-buffering"] == "no"
        threading.Timer(0.3, stores.put_shop_batch, [store, 3, [stores.alert("firing", 150.0)]]).start()
        alert, batch = events(answer, 2)
        assert (alert[:2], alert[2]["monitor"], alert[2]["state"]) == (("alert", None), "attack", "firing")
        assert batch[:2] == ("batch", "3")
        assert batch[2] == client.get("/api/runs").json()["rows"][-1]
        assert alert[2] == client.get("/api/alerts").json()["rows"][-1]


def test_a_client_that_reconnects_receives_what_it_missed(store):
    with serving(store.path) as client:
        with client.stream("GET", "/api/stream", headers={"last-event-id": "0"}) as answer:
            received = events(answer, 4)
        assert [(event, data["batch"]) for event, _, data in received] == [
            ("alert", 1),
            ("batch", 1),
            ("alert", 2),
            ("batch", 2),
        ]
        with client.stream("GET", "/api/stream", headers={"last-event-id": "99"}) as answer:  # of another run
            assert [number for _, number, _ in events(answer, 2)] == [None, "2"]
        with client.stream("GET", "/api/stream", headers={"last-event-id": "2"}) as answer:
            stores.put_shop_batch(store, 3)
            assert [number for _, number, _ in events(answer, 1)] == ["3"]
        for odd in ("nonsense", "-1", "٣", "", "9" * 40):
            with client.stream("GET", "/api/stream", headers={"last-event-id": odd.encode()}) as answer:
                assert answer.status_code == 200


def test_a_batch_that_is_run_again_is_sent_again(store):
    with serving(store.path) as client, client.stream("GET", "/api/stream") as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("retry: ")
        store.clear(2)
        put_batch(store, 2, NOON, run=RUN | {"seconds": 9.0})
        while not (line := next(lines)).startswith("data: "):
            pass
        assert json.loads(line.removeprefix("data: "))["seconds"] == 9.0


def test_answers_follow_the_store(store):
    with serving(store.path) as client:
        put_sketches(store, 3, NOON, stores.shop_sketches(["paris"]))
        stores.put_shop_batch(store, 3)
        wait_until(lambda: client.get("/api/health").json()["batch"] == 3)
        assert client.get("/api/about").json()["sites"] == ["lima", "paris"]
        assert client.get("/api/count?key=/").json()["estimate"]["value"] == 1


def test_the_server_stops_while_clients_are_connected(store):
    with httpx.Client(trust_env=False, timeout=PATIENCE) as listener:
        with serving(store.path) as client:
            request = listener.build_request("GET", client.base_url.join("/api/stream"))
            answers = [listener.send(request, stream=True) for _ in range(3)]
            lines = [answer.iter_lines() for answer in answers]
            assert {next(stream) for stream in lines} == {"retry: 2000"}
        assert [list(stream) for stream in lines] == [[""]] * 3


def test_the_number_of_clients_is_limited(store):
    with serving(store.path) as client:
        limits = httpx.Limits(max_connections=None)
        with httpx.Client(base_url=client.base_url, limits=limits, trust_env=False, timeout=PATIENCE) as many:
            answers = [many.send(many.build_request("GET", "/api/stream"), stream=True) for _ in range(_MAX_CLIENTS)]
            pieces = [answer.iter_raw() for answer in answers]
            assert {next(piece) for piece in pieces} == {b"retry: 2000\n\n"}
            refused = client.get("/api/stream", timeout=PATIENCE)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "busy")
            for answer in answers:
                answer.close()
        wait_until(lambda: "lately_stream_listeners 0.0" in client.get("/metrics").text)


def test_pings_and_clients_that_do_not_read(store):
    async def scene():
        broadcaster = Broadcaster(View(store.path), Metrics([]), poll_interval=0.02, ping_interval=0.05)
        watching = asyncio.create_task(broadcaster.watch())
        slow, fast = broadcaster.connect(None), broadcaster.connect(None)
        assert [await anext(slow), await anext(fast)] == [b"retry: 2000\n\n"] * 2
        assert await anext(fast) == b": ping\n\n"
        received = []

        async def receive():
            async for frame in fast:
                received.append(frame)

        receiving = asyncio.create_task(receive())
        await asyncio.sleep(0)
        for batch in range(3, 3 + _MAX_WAITING + 2):  # more than may wait for a client that does not read
            put_batch(store, batch, NOON, run=RUN)
        async with asyncio.timeout(PATIENCE):
            while not any(b"id: 260" in frame for frame in received):
                await asyncio.sleep(0.02)
        rest = [frame async for frame in slow]
        broadcaster.disconnect_all()
        await receiving
        watching.cancel()
        broadcaster.close()
        return received, rest

    received, rest = asyncio.run(scene())
    assert [frame.split(b"\n")[0] for frame in received if frame.startswith(b"id")] == [b"id: %d" % n for n in range(3, 261)]
    assert len(rest) < _MAX_WAITING
