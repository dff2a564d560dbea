"""Calls over a real connection on loopback: kept, closed, cut. Nothing is changed twice."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mulligan.errors import LoginRefused, MulliganError, StoreRefused, StoreUnavailable
from mulligan.store.http.http_connection import HttpTransport
from mulligan.store.http.http_store import HttpStore

PROCESS = "one"
# For 127.0.0.1, signed by itself, with its key.
CERTIFICATE = Path(__file__).parents[1] / "worker" / "loopback.pem"


class Server:
    """Answers each request as the script says: with a body, or by closing the connection before or after it."""

    def __init__(self, *, is_tls: bool = False) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._context: ssl.SSLContext | None = None
        if is_tls:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(CERTIFICATE)
        self.url = f"{'https' if is_tls else 'http'}://127.0.0.1:{self.port}"
        self.script: list[str] = []
        self.body = b"[]"
        self.requests: list[dict[str, str]] = []
        self.connections = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        # Closing a socket does not wake the thread that accepts on it.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(5)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        if self._context is not None:
            try:
                connection = self._context.wrap_socket(connection, server_side=True)
            except OSError:
                # The client does not trust us.
                connection.close()
                return
        with connection, connection.makefile("rwb") as stream:
            while self._answer(stream):
                pass

    def _answer(self, stream: Any) -> bool:
        """Answer one request. False if the connection is to be closed."""
        if stream.peek(1)[:1] == b"\x16":
            # A client that wants TLS, where there is none.
            stream.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            return False
        first = stream.readline()
        if not first:
            return False
        headers = {"path": first.decode().split()[1]}
        while (line := stream.readline().strip()) != b"":
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        stream.read(int(headers.get("content-length", "0")))
        self.requests.append(headers)
        step = self.script.pop(0) if self.script else "answer"
        if step == "cut":
            return False
        if step.startswith("HTTP/"):
            stream.write(step.encode())
            stream.flush()
            return True
        body = self.body
        stream.write(
            b"HTTP/1.1 200 OK\r\nMulligan-Process: %s\r\nContent-Length: %d\r\n\r\n%s"
            % (PROCESS.encode(), len(body), body)
        )
        stream.flush()
        return step != "answer and close"


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.close()


@pytest.fixture
def transport(server: Server) -> Iterator[HttpTransport]:
    one = HttpTransport(server.url, token="mul_x")
    yield one
    one.close()


def test_calls_share_one_connection_and_say_who_asks(server: Server, transport: HttpTransport) -> None:
    for _ in range(3):
        assert transport.call("runs", b"{}") == b"[]"

    assert server.connections == 1
    asked = server.requests[0]
    assert (asked["path"], asked["authorization"], asked["mulligan-protocol"]) == (
        "/api/v1/store/read/runs",
        "Bearer mul_x",
        "1",
    )


def test_what_reads_is_asked_again_when_the_connection_breaks(server: Server, transport: HttpTransport) -> None:
    server.script = ["cut"]

    assert transport.call("runs", b"{}") == b"[]"
    assert len(server.requests) == 2


def test_a_change_is_asked_again_only_of_the_process_that_would_know_it(
    server: Server, transport: HttpTransport
) -> None:
    server.script = ["answer", "cut"]
    transport.call("runs", b"{}")

    transport.call("create", b"{}")

    first, again = server.requests[1:]
    assert first["mulligan-call"] == again["mulligan-call"]
    assert ("mulligan-process" in first, again["mulligan-process"]) == (False, PROCESS)


def test_a_change_whose_process_is_unknown_is_not_asked_again(server: Server, transport: HttpTransport) -> None:
    server.script = ["cut"]

    with pytest.raises(StoreUnavailable) as unavailable:
        transport.call("create", b"{}")

    assert len(server.requests) == 1
    assert "unknown whether" in unavailable.value.hint


def test_a_connection_that_the_server_has_closed_meanwhile_is_replaced_before_a_change(
    server: Server, transport: HttpTransport
) -> None:
    server.script = ["answer and close"]
    transport.call("runs", b"{}")

    transport.call("create", b"{}")

    assert server.connections == 2
    assert len(server.requests) == 2


def test_a_server_that_is_not_there_is_unavailable_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    transport = HttpTransport(f"http://127.0.0.1:{port}", token="mul_x")

    with pytest.raises(StoreUnavailable, match="connection refused") as unavailable:
        transport.call("runs", b"{}")
    assert "mulligan server" in unavailable.value.hint


def test_waiting_wakes_a_descriptor(server: Server, transport: HttpTransport) -> None:
    server.body = b"17"
    fd = transport.begin_wait(-1)
    assert fd is not None
    select.select([fd], [], [], 10)

    assert transport.end_wait() == 17
    # Nothing was asked since.
    assert transport.end_wait() is None
    assert server.requests[-1]["path"] == "/api/v1/store/changes/read?seconds=20&since=-1"


# -- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tls_server() -> Iterator[Server]:
    server = Server(is_tls=True)
    yield server
    server.close()


def test_a_server_with_a_certificate_of_an_authority_that_was_named_is_asked_over_tls(
    tls_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MULLIGAN_CA_FILE", str(CERTIFICATE))
    store = HttpStore(tls_server.url, token="mul_x")
    try:
        assert store.runs() == store.runs() == []
        assert tls_server.connections == 1
        # The ticket of TLS that the server sends first is not taken for an answer.
        tls_server.body = b"7"
        descriptor = store.fileno()
        assert descriptor is not None
        select.select([descriptor], [], [], 5)
        assert store.has_changes()
    finally:
        store.close()
    assert tls_server.requests[0]["authorization"] == "Bearer mul_x"


@pytest.mark.parametrize(
    ("ca_file", "host", "message", "hint"),
    [
        ("", "https://127.0.0.1", "self-signed certificate", "MULLIGAN_CA_FILE=FILE"),
        (str(CERTIFICATE), "https://localhost", "not valid for 'localhost'", "a name that is in the certificate"),
        (__file__, "https://127.0.0.1", "cannot be used as the file of a certificate authority", "in PEM"),
        ("/nowhere.pem", "https://127.0.0.1", "no such file", "in PEM"),
    ],
)
def test_a_server_that_cannot_be_verified_is_refused_in_words_and_gets_no_token(
    tls_server: Server, ca_file: str, host: str, message: str, hint: str
) -> None:
    transport = HttpTransport(f"{host}:{tls_server.port}", token="mul_x", ca_file=ca_file)

    with pytest.raises(StoreRefused) as refused:
        transport.call("runs", b"{}")

    assert message in refused.value.message
    assert hint in refused.value.hint
    assert tls_server.requests == []


def test_a_server_without_tls_is_not_asked_over_tls(server: Server) -> None:
    transport = HttpTransport(f"https://127.0.0.1:{server.port}", token="mul_x")

    with pytest.raises(StoreRefused, match="there is no TLS") as refused:
        transport.call("runs", b"{}")

    assert "http://" in refused.value.hint


def answer(status: int, body: str, headers: str = "") -> str:
    return f"HTTP/1.1 {status} Said\r\nContent-Length: {len(body)}\r\n{headers}\r\n{body}"


PAGE = "<html>try again later</html>"
FOREIGN = [answer(status, PAGE) for status in (200, 404, 418, 500, 502, 503)]
# A gateway may have problem details of its own.
FOREIGN += [answer(404, '{"type": "about:blank", "detail": "no route", "code": "run.unknown"}')]
FOREIGN += [answer(401, '{"detail": "no session", "code": "token_not_valid"}')]
FOREIGN += [answer(302, "", "Location: /login\r\n"), answer(401, PAGE), answer(200, "[]")]


@pytest.mark.parametrize("scope", ["read", "worker"])
@pytest.mark.parametrize("said", FOREIGN)
def test_an_answer_that_is_not_the_servers_is_waited_for_once_it_was_reached(
    server: Server, scope: str, said: str
) -> None:
    with closing(HttpTransport(server.url, token="mul_x", scope=scope)) as transport:
        transport.call("runs", b"{}")
        server.script = [said]

        with pytest.raises(StoreUnavailable):
            transport.call("runs", b"{}")
        assert transport.call("runs", b"{}") == b"[]"
    # Not on the connection to whatever has answered instead.
    assert server.connections == 2


@pytest.mark.parametrize("said", FOREIGN)
def test_a_page_at_the_first_question_says_that_the_address_may_be_wrong(
    server: Server, transport: HttpTransport, said: str
) -> None:
    server.script = [said]

    with pytest.raises((StoreRefused, StoreUnavailable), match="not as a server of Mulligan does") as refused:
        transport.call("runs", b"{}")
    assert isinstance(refused.value, StoreUnavailable) == (" 50" in said and "500" not in said)


def problem(status: int, code: str) -> str:
    return answer(status, f'{{"type":"urn:mulligan:error:{code}","code":"{code}","detail":"it is so"}}')


@pytest.mark.parametrize(
    ("said", "is_worker_waiting", "is_reader_waiting"),
    [
        (problem(500, "server.failed"), True, False),
        (problem(500, "store.refused"), True, False),
        (problem(503, "server.overtaken"), True, True),
        (problem(404, "request.path"), True, False),
        (problem(400, "store.refused"), True, False),
        (problem(404, "run.unknown"), False, False),
        (problem(403, "token.scope"), False, False),
    ],
)
def test_a_worker_waits_for_a_server_that_fails_or_is_of_another_version(
    server: Server, said: str, is_worker_waiting: bool, is_reader_waiting: bool
) -> None:
    found = []
    for scope in ("worker", "read"):
        with closing(HttpTransport(server.url, token="mul_x", scope=scope)) as transport:
            transport.call("runs", b"{}")
            server.script = [said]
            with pytest.raises(MulliganError) as refused:
                transport.call("runs", b"{}")
        found.append(isinstance(refused.value, StoreUnavailable))

    assert found == [is_worker_waiting, is_reader_waiting]


def test_a_worker_whose_token_is_refused_asks_again_for_a_while(server: Server) -> None:
    now = 100.0
    transport = HttpTransport(server.url, token="mul_x", scope="worker", monotonic=lambda: now)
    refusal = problem(401, "token.refused")

    server.script = [refusal]
    with pytest.raises(LoginRefused):
        # It was never registered.
        transport.call("runs", b"{}")
    transport.call("runs", b"{}")
    server.script = [refusal, "answer", refusal, refusal, refusal]
    for seconds, kind in ((0.0, StoreUnavailable), (90.0, None), (0.0, StoreUnavailable), (29.0, StoreUnavailable)):
        now += seconds
        if kind is None:
            transport.call("runs", b"{}")
            continue
        with pytest.raises(kind):
            transport.call("runs", b"{}")
    now += 1.0
    with pytest.raises(LoginRefused):
        transport.call("runs", b"{}")
    transport.close()


def test_a_page_in_place_of_a_change_is_waited_for(server: Server, transport: HttpTransport) -> None:
    server.body = b"1"
    transport.call("runs", b"{}")
    server.script = ["answer", answer(200, PAGE)]
    fd = transport.begin_wait(0)
    assert fd is not None
    select.select([fd], [], [], 5)

    with pytest.raises(StoreUnavailable):
        transport.end_wait()
