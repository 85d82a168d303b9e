"""``lately serve``, and ``lately query --url``: what a service says is what its store says."""

import http.server
import json
import re
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
from cli_cases import assert_one_line, assert_refused, assert_wrong_usage, data_of, run, run_apart, serving
from cli_stores import QUESTIONS
from patience import PATIENCE, wait_until

pytestmark = pytest.mark.usefixtures("wide_and_plain")

TOKEN = "a-token-of-the-tests"


@pytest.fixture(autouse=True)
def no_token(monkeypatch):
    monkeypatch.delenv("LATELY_TOKEN", raising=False)


def ask(url, *args):
    return run("query", *args, "--url", url)


# -- the same, whoever is asked ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_a_service_says_what_its_store_says(question, shop, service):
    near, far = run("query", *question, "--store", shop), ask(service, *question)
    assert (far.exit_code, far.stderr) == (0, "")
    assert far.stdout == near.stdout
    assert data_of(ask(service, *question, "--json")) == data_of(run("query", *question, "--store", shop, "--json"))


@pytest.mark.parametrize(
    "question",
    [["count", "7", "--last", "100"], ["range", "0", "9", "--from", "200", "--to", "100"], ["total", "--from", "50"], ["runs"]],
    ids=" ".join,
)
def test_a_stream_of_integers_too(question, flows, flow_service):
    far = data_of(ask(flow_service, *question, "--json"))
    assert far == data_of(run("query", *question, "--store", flows, "--json"))


@pytest.mark.parametrize(
    ("question", "named"),
    [
        (["count", "/", "--site", "rome"], ["'rome'", "lima"]),
        (["count", "/", "--of", "hottest"], ["'hottest'", "hot"]),
        (["count", "/", "--last", "2h"], ["2h", "1h"]),
        (["count", "/", "--last", "soon"], ["'soon'", "10m"]),
        (["count", "/", "--from", "10m", "--to", "20m"], ["backwards"]),
        (["quantiles", "1.5"], ["q"]),
        (["answers", "cold"], ["'cold'", "hot"]),
        (["history", "cold"], ["'cold'", "hot"]),
        (["history", "hot"], ["--item", "'/cart'"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_what_a_service_refuses_is_told_in_one_line(question, named, service):
    assert_refused(ask(service, *question), *named)


# -- tokens ------------------------------------------------------------------------------------------------------------


def test_a_service_with_a_token_is_asked_with_it(shop, tmp_path, monkeypatch):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    with serving(shop, "--token-file", str(file)) as (url, _):
        assert_refused(ask(url, "top"), "token", "LATELY_TOKEN")
        monkeypatch.setenv("LATELY_TOKEN", "another-token")
        assert_refused(ask(url, "top"), "wrong token", "LATELY_TOKEN")
        monkeypatch.setenv("LATELY_TOKEN", TOKEN)
        assert data_of(ask(url, "total", "--json"))["estimate"]["value"] == 5400


def test_the_token_goes_nowhere_else(monkeypatch):
    monkeypatch.setenv("LATELY_TOKEN", TOKEN)
    heard = []
    with answering(lambda request: heard.append(request.headers["Authorization"]) or (200, {}, b"{}")) as elsewhere:
        with answering(lambda request: (302, {"Location": f"{elsewhere}/api/top"}, b"")) as url:
            assert_refused(ask(url, "top"), url, "no service of lately")
        assert heard == []
        assert_refused(ask(elsewhere, "top"), "'rows'", "version")
        assert heard == [f"Bearer {TOKEN}"]


def test_others_are_let_in_with_a_token_only(shop, tmp_path):
    refused = run("serve", shop, "--host", "0.0.0.0", "--port", 0)
    assert_refused(refused, "LATELY_TOKEN", "127.0.0.1")
    assert_refused(run("serve", shop, "--token-file", tmp_path / "nowhere"), "nowhere", "No such file")
    (tmp_path / "empty").write_text("\n")
    assert_refused(run("serve", shop, "--token-file", tmp_path / "empty"), "token")


# -- what is not there -------------------------------------------------------------------------------------------------


@contextmanager
def answering(answer):
    """A server that is not lately's: ``answer`` gives status, headers and body."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, headers, body = answer(self)
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_nobody_there_is_told_with_the_remedy():
    with socket.socket() as taken:  # so that nobody else can listen there
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert_refused(ask(url, "top"), url, "refused", "lately serve STORE")
    assert_refused(ask("http://no.such.host.invalid:80", "top"), "no.such.host.invalid", "check the address")


@pytest.mark.parametrize("url", ["127.0.0.1:8765", "ftp://127.0.0.1", "file:///etc/passwd", "http://", "http://a?b=c", ""])
def test_what_is_no_address_is_refused(url):
    assert_refused(ask(url, "top"), "http://127.0.0.1:8765")


@pytest.mark.parametrize(
    "answer",
    [
        (200, {}, b"<html>hello"),
        (200, {}, b"[]"),
        (200, {}, b"\xff\xfe"),
        (404, {}, b"not here"),
        (500, {}, json.dumps({"error": "no"}).encode()),
        (500, {}, json.dumps({"error": {"message": "m", "remedy": "r"}}).encode()),
    ],
    ids=["page", "list", "bytes", "404", "other error", "our error"],
)
def test_other_servers_are_told_apart(answer):
    with answering(lambda request: answer) as url:
        ours = b"remedy" in answer[2]
        assert_refused(ask(url, "top"), *(["m; r"] if ours else [url, "no service of lately"]))


def test_a_busy_service_is_asked_again():
    slow = json.dumps({"error": {"code": "too_slow", "message": "it takes long", "remedy": "ask again"}}).encode()
    done = json.dumps({"estimate": {"value": 7, "low": 7, "high": 7, "confidence": 1}, "asof": None}).encode()
    answers = [(503, {}, slow), (503, {}, slow), (200, {}, done)]
    with answering(lambda request: answers.pop(0)) as url:
        assert data_of(ask(url, "total", "--json"))["estimate"]["value"] == 7


def test_names_of_any_bytes_are_refused_like_others(service):
    odd = b"caf\xe9".decode("utf-8", "surrogateescape")  # as Python hands on what a shell was given
    assert_refused(ask(service, "top", "--site", odd), "caf")
    assert_refused(ask(service, "count", odd), "string")
    assert_refused(ask(service, "history", odd), "caf")


def test_a_connection_that_breaks_is_told():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up():
            server.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert_refused(ask(url, "top"), url, "does not answer")
        thread.join()


# -- lately serve ------------------------------------------------------------------------------------------------------


def test_ctrl_c_ends_it_with_130_and_without_a_word(shop):
    with serving(shop) as (url, process):
        assert data_of(ask(url, "total", "--json"))["estimate"]["value"] == 5400
        assert process.poll() is None  # serving() looks at how it ends


def test_it_says_what_is_wrong_with_the_store_or_the_port(shop, tmp_path):
    assert_refused(run("serve", tmp_path / "nowhere"), "nowhere", "[store] path")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert_refused(run("serve", shop, "--port", port), port, "in use", "--port")
    assert_wrong_usage(run("serve", shop, "--port", "70000"), "--port")
    assert_wrong_usage(run("serve"), "STORE")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_open_opens_the_page(host, shop, tmp_path):
    """In the browser that the environment names: a script that tells the address."""
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.part && mv {opened}.part {opened}\n')
    browser.chmod(0o755)
    with serving(shop, "--open", "--host", host, BROWSER=str(browser), LATELY_TOKEN=TOKEN) as (url, _):
        wait_until(opened.exists)
        assert url.startswith(f"http://{host}:")
        assert opened.read_text() == f"http://127.0.0.1:{url.rpartition(':')[2]}/\n"


def test_without_a_web_server_it_says_what_to_install(shop):
    code = f"import sys; sys.modules['fastapi'] = None; sys.argv[1:] = ['serve', {shop!r}]\nfrom lately.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert_one_line(done.stderr, "pip install 'lately[serve]'")


def test_ctrl_c_ends_a_question_with_130():
    """While it waits for an answer that does not come."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        command = [sys.executable, "-m", "lately", "query", "top", "--url", url]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with server.accept()[0] as connection:
            assert connection.recv(10_000).startswith(b"GET /api/top?k=10 HTTP/1.1")
            process.send_signal(2)
            out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err


def test_help_is_there_without_a_web_server():
    done = run_apart("serve", "--help")
    assert done.returncode == 0
    assert re.search(r"--token-file", done.stdout)
