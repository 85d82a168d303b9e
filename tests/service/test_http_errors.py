"""Errors over HTTP: the right status and code, always the same JSON shape, and a remedy."""

import json
import shutil
import subprocess
import sys
from http.client import HTTPConnection

import pytest
import stores
from patience import PATIENCE, wait_until
from serving import serving
from store_builder import NOON, RUN, new_store, put_batch

from lately.core.errors import InputError, LatelyError, ParameterError
from lately.service import create_app
from lately.service.security import MAX_BODY

TOKEN = "correct-horse-battery"


def assert_error(answer, status, code):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert list(answer.json()) == ["error"]
    assert list(error) == ["code", "message", "remedy"]
    assert error["code"] == code
    assert error["message"]
    return error


@pytest.fixture(scope="module")
def guarded(shop_path):
    with serving(shop_path, token=TOKEN, loopback=False) as client:
        yield client


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("count", 400, "bad_value"),
        ("count?key=/&lats=10m", 400, "bad_value"),
        ("count?key=/&last=10x", 400, "bad_range"),
        ("count?key=/&last=", 400, "bad_range"),
        ("count?key=/&last=2h", 400, "bad_range"),
        ("count?key=/&last=-1m", 400, "bad_range"),
        ("count?key=/&last=2026-01-01", 400, "bad_range"),
        ("count?key=/&last=10m&from=1h", 400, "bad_range"),
        ("count?key=/&to=1h", 400, "bad_range"),
        ("count?key=/&from=10m&to=1h", 400, "bad_range"),
        ("count?key=/&from=yesterday", 400, "bad_range"),
        ("count?key=/&from=2026-13-01&to=1m", 400, "bad_value"),
        ("count?key=/&from=1999-01-01", 400, "bad_range"),
        ("count?key=/&site=rome", 404, "unknown_site"),
        ("count?key=/&site=", 404, "unknown_site"),
        ("count?key=/&of=cold", 404, "unknown_query"),
        ("count?key=/&of=sum", 409, "no_sketch"),
        ("count?key=/&of=slow", 409, "no_sketch"),
        ("count?key=" + 5000 * "x", 400, "bad_value"),
        ("top?k=0", 400, "bad_value"),
        ("top?k=1001", 400, "bad_value"),
        ("top?k=ten", 400, "bad_value"),
        ("top?of=slow", 409, "no_sketch"),
        ("quantiles?q=1.5", 400, "bad_value"),
        ("quantiles?q=nan", 400, "bad_value"),
        ("range?lo=1", 400, "bad_value"),
        ("range?lo=9&hi=1", 400, "bad_range"),
        ("inner-product?left=bought&right=cold", 404, "unknown_query"),
        ("answers?query=cold", 404, "unknown_query"),
        ("history?query=cold", 404, "unknown_query"),
        ("history", 400, "bad_value"),
        ("runs?limit=0", 400, "bad_value"),
        ("alerts?limit=100000", 400, "bad_value"),
        ("health?verbose=1", 400, "bad_value"),
        ("nothing", 404, "unknown_path"),
        ("counts", 405, "wrong_method"),
    ],
)
def test_invalid_requests(shop, path, status, code):
    error = assert_error(shop.get(f"/api/{path}"), status, code)
    assert error["remedy"], error


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("count", "key is required"),
        ("count?key=/&lst=2h", "lst is not a parameter of this path"),
        ("top?k=0", "k must be at least 1, not '0'"),
        ("top?k=ten", "k must be an integer, not 'ten'"),
        ("quantiles?q=0.5&q=2", "q.1 must be at most 1, not '2'"),
        ("nothing", "GET /api/nothing: there is no such path"),
    ],
)
def test_messages_name_the_parameter(shop, path, message):
    assert shop.get(f"/api/{path}").json()["error"]["message"] == message


def test_the_message_for_a_body_that_is_not_json(shop):
    response = shop.post("/api/counts", content=b"{bad", headers={"content-type": "application/json"})
    assert response.json()["error"]["message"] == "the body is not JSON"


def test_the_error_for_an_unknown_name_lists_the_known_ones(shop):
    error = assert_error(shop.get("/api/count?key=/&site=rome"), 404, "unknown_site")
    assert "'rome'" in error["message"]
    assert "'lima', 'paris', 'tokyo'" in error["remedy"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"keys": []},
        {"keys": "/"},
        {"keys": [1.5]},
        {"keys": [True]},
        {"keys": [None]},
        {"keys": ["/"], "site": "lima"},
        {"keys": ["/"], "last": 1.5},
        {"keys": ["x" * 5000]},
        {"keys": ["/"] * 10_001},
        [],
        None,
    ],
)
def test_invalid_bodies(shop, body):
    assert_error(shop.post("/api/counts", json=body), 400, "bad_value")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"keys": [' + b"[" * 5000, b'{"keys": ["/"], "last": 1e999}'])
def test_a_body_that_is_not_json(shop, content):
    response = shop.post("/api/counts", content=content, headers={"content-type": "application/json"})
    assert_error(response, 400, "bad_value")


def test_an_oversized_body(shop):
    headers = {"content-type": "application/json"}
    body = json.dumps({"keys": ["/" + "x" * 200] * 6000}).encode()
    assert len(body) > MAX_BODY
    assert_error(shop.post("/api/counts", content=body, headers=headers), 413, "too_large")
    pieces = (body[i : i + 65_536] for i in range(0, len(body), 65_536))  # without a Content-Length
    assert_error(shop.post("/api/counts", content=pieces, headers=headers), 413, "too_large")


def test_an_oversized_query(shop):
    connection = HTTPConnection(shop.base_url.host, shop.base_url.port, timeout=PATIENCE)
    connection.request("GET", "/api/count?key=/" + "&site=lima" * 4000)
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())["error"]["code"]) == (400, "too_large")
    connection.close()


def test_a_lone_surrogate_does_not_break_an_answer(shop):
    response = shop.post("/api/counts", content=b'{"keys": ["\\ud800"]}', headers={"content-type": "application/json"})
    assert response.status_code in (200, 400)
    response.json()


def test_texts_where_keys_are_integers(ports):
    assert_error(ports.get("/api/count?key=http"), 400, "bad_value")
    assert_error(ports.get("/api/count?key=80&last=10m"), 400, "bad_range")
    assert_error(ports.get("/api/count?key=99999999999999999999999"), 400, "bad_value")
    assert_error(ports.get("/api/top"), 409, "no_sketch")


# -- access control ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/api/health", "/api/count?key=/", "/metrics", "/api/openapi.json", "/api/stream", "/nothing"]
)
@pytest.mark.parametrize(
    "header",
    [None, "Bearer wrong", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer", "Bearer \xe9", TOKEN, f"Bearer {TOKEN[:-1]}"],
)
def test_without_the_token(guarded, path, header):
    headers = {} if header is None else {"authorization": header.encode("latin-1")}
    response = guarded.get(path, headers=headers)
    assert_error(response, 401, "unauthorized")
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("header", [f"Bearer {TOKEN}", f"bearer {TOKEN}"])
def test_with_the_token(guarded, header):
    for path in ("/api/health", "/api/count?key=/", "/metrics", "/api/openapi.json"):
        assert guarded.get(path, headers={"authorization": header}).status_code == 200
    assert guarded.get("/api/openapi.json", headers={"authorization": header}).json()["security"] == [{"token": []}]


def test_the_token_in_the_address_opens_the_stream_only(guarded):
    assert_error(guarded.get(f"/api/health?token={TOKEN}"), 401, "unauthorized")
    assert_error(guarded.get("/api/stream?token=wrong"), 401, "unauthorized")
    assert_error(guarded.get("/api/stream?token=%FF"), 401, "unauthorized")
    assert_error(guarded.get(f"/api/stream?token={TOKEN}&more=1"), 400, "bad_value")


def test_the_page_needs_no_token_but_paths_beside_it_do(guarded):
    assert guarded.get("/static/nothing.js").status_code == 404
    assert guarded.get("/static/../api/health").status_code == 401
    assert guarded.get("/staticapi").status_code == 401


@pytest.mark.parametrize("token", ["", "short", "with blank in it", "naïve-naïve", "x" * 600])
def test_invalid_tokens(shop_path, token):
    with pytest.raises(ParameterError, match="openssl rand"):
        create_app(shop_path, token=token)


def test_beyond_loopback_there_must_be_a_token(shop_path):
    with pytest.raises(ParameterError, match="LATELY_TOKEN"):
        create_app(shop_path, loopback=False)


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:80", "[::1]:8000", "127.1.2.3", "LOCALHOST"])
def test_hosts_that_are_this_machine(shop, host):
    assert shop.get("/api/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "10.0.0.1", "127.0.0.1.evil.example", "", "a:b:c", "[::1"]
)
def test_hosts_that_are_not_this_machine(shop, guarded, host):
    for path in ("/api/health", "/"):
        assert_error(shop.get(path, headers={"host": host}), 400, "wrong_host")
    authorization = {"authorization": f"Bearer {TOKEN}"}
    assert guarded.get("/api/health", headers={"host": host or "x"} | authorization).status_code == 200


def test_every_answer_has_safe_headers(shop):
    for path in ("/api/health", "/api/nothing", "/metrics", "/static/nothing.js", "/api/count?key=/&last=x"):
        headers = shop.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == ("no-cache" if path.startswith("/static") else "no-store")


# -- stores ------------------------------------------------------------------------------------------------------------


def test_a_store_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="no store at"):
        create_app(str(tmp_path / "nothing"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"about\.json"):
        create_app(str(tmp_path / "empty"))


def test_a_store_of_a_newer_format(tmp_path):
    store = new_store(tmp_path / "store", **stores.ABOUT)
    (tmp_path / "store/about.json").write_text(json.dumps(stores.ABOUT | {"format": 99}))
    with pytest.raises(InputError, match="upgrade lately"):
        create_app(store.path)


def test_a_damaged_sketch(tmp_path):
    store = stores.shop(tmp_path / "store")
    row = {"version": 3, "time": NOON, "site": "lima", "sketch": stores.TOP, "kind": "topk", "blob": b"not a sketch"}
    store.put("sketches", 3, [row], part="lima")
    put_batch(store, 3, NOON, run=RUN)
    with serving(store.path) as client:
        error = assert_error(client.get("/api/top"), 503, "store_unreadable")
        assert "lately store check" in error["remedy"]
        assert client.get("/api/answers").status_code == 200


def test_a_store_that_is_deleted_while_it_is_served(tmp_path):
    store = stores.shop(tmp_path / "store")
    with serving(store.path) as client:
        assert client.get("/api/health").status_code == 200
        shutil.rmtree(store.path)
        response = wait_until(lambda: (answer := client.get("/api/health")).status_code != 200 and answer)
        assert response.status_code == 503
        assert response.json()["error"]["remedy"]


# -- without a web server ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn", "prometheus_client"])
def test_without_the_extra_the_error_says_what_to_install(missing):
    code = f"""
import sys
sys.modules[{missing!r}] = None
import lately as lt
try:
    import lately.service
except lt.LatelyError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "pip install 'lately[serve]'" in done.stdout
    assert issubclass(InputError, LatelyError)
