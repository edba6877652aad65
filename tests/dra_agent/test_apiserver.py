"""The client of the API server against a real socket: good, slow, failing, absent and confused answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from draState.plugin import ApiError, ApiServer, Credentials
from draState.plugin.rehearsal import LocalApiServer

DRIVER = "gpu.example.com"


clients: list[ApiServer] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while clients:
        clients.pop().close()


def client(cluster: LocalApiServer, timeout: float = 2.0) -> ApiServer:
    clients.append(ApiServer(Credentials("127.0.0.1", int(cluster.address.rpartition(":")[2])), timeout))
    return clients[-1]


def test_a_claim_is_fetched_by_name(cluster: LocalApiServer) -> None:
    cluster.allocate("u1", "c1", ["gpu-0"], driver=DRIVER, pool="n1")
    assert client(cluster).claim("default", "c1")["metadata"]["uid"] == "u1"


@pytest.mark.parametrize(("status", "text"), [(404, '"c1" not found'), (503, "set to fail"), (403, "set to fail")])
def test_a_refusal_names_the_request_and_the_answer(cluster: LocalApiServer, status: int, text: str) -> None:
    cluster.failing = status if status != 404 else 0
    with pytest.raises(ApiError, match=text) as error:
        client(cluster).claim("default", "c1")
    assert error.value.status == status
    assert "GET /namespaces/default/resourceclaims/c1" in str(error.value)


def test_a_request_to_a_slow_server_ends_after_the_timeout(cluster: LocalApiServer) -> None:
    cluster.delay = 30
    with pytest.raises(ApiError, match=r"no answer within 0\.2 s"):
        client(cluster, 0.2).claim("default", "c1")


def test_an_absent_server_is_reported_at_once() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(ApiError, match="cannot be reached"):
        ApiServer(Credentials("127.0.0.1", port), 2).claim("default", "c1")


def test_an_idle_connection_that_the_server_closed_is_opened_again(cluster: LocalApiServer) -> None:
    cluster.allocate("u1", "c1", ["gpu-0"], driver=DRIVER, pool="n1")
    server = client(cluster)
    server.claim("default", "c1")
    cluster.go_down()
    cluster.listen()
    assert server.claim("default", "c1")["metadata"]["uid"] == "u1"


def test_after_a_failure_the_same_thread_can_ask_again(cluster: LocalApiServer) -> None:
    cluster.allocate("u1", "c1", ["gpu-0"], driver=DRIVER, pool="n1")
    server = client(cluster, 0.3)
    cluster.delay = 30
    with pytest.raises(ApiError):
        server.claim("default", "c1")
    cluster.delay = 0
    assert server.claim("default", "c1")["metadata"]["uid"] == "u1"


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b"", b"\xff\xfe"])
def test_an_answer_that_is_no_object_is_an_error(answer: bytes) -> None:
    class Confused(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Confused) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        with pytest.raises(ApiError, match="not JSON"):
            ApiServer(Credentials("127.0.0.1", server.server_address[1]), 2).claim("default", "c")


def test_names_cannot_change_the_path(cluster: LocalApiServer) -> None:
    with pytest.raises(ApiError, match=r"\.\.%2F"):
        client(cluster).claim("default", "../x")
