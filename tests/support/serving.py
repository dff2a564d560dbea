"""A server in this process for one home: the calls of a store over HTTP, on a free port of the loopback interface."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec

from mulligan.errors import LoginRefused, MulliganError, StoreForbidden
from mulligan.service.home import Home
from mulligan.service.rendering.json_output import error_to_json
from mulligan.service.server.store_calls import PROCESS, StoreCalls
from mulligan.service.service import Service
from mulligan.store.http.http_calls import CALL_HEADER, PROCESS_HEADER, PROTOCOL_HEADER

TOKEN = "mul_" + "t" * 43
READER = "mul_" + "r" * 43
_SCOPES = {TOKEN: ("read", "run", "send", "decide", "write"), READER: ("read",)}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # One packet for head and body.
    wbufsize = -1
    home: Home

    def setup(self) -> None:
        """One service for each connection, which has a thread of its own."""
        super().setup()
        self.service = Service(self.home, "ann")

    def finish(self) -> None:
        self.service.close()
        super().finish()

    def do_POST(self) -> None:
        *_, scope, name = self.path.split("/")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            self._admit(scope)
            answer = StoreCalls(self.service.changes).answer(
                scope,
                name,
                body,
                protocol=self.headers.get(PROTOCOL_HEADER, ""),
                call_id=self.headers.get(CALL_HEADER, ""),
                process=self.headers.get(PROCESS_HEADER, ""),
            )
        except MulliganError as error:
            self._refuse(error)
        else:
            self._send(200, answer)

    def do_GET(self) -> None:
        """Nobody has to wait here: each change has another number."""
        _Handler.changes += 1
        self._send(200, msgspec.json.encode(_Handler.changes))

    changes = 0

    def _admit(self, scope: str) -> None:
        scopes = _SCOPES.get(self.headers.get("Authorization", "").removeprefix("Bearer "))
        if scopes is None:
            raise LoginRefused("a valid token is needed", hint="log in: mulligan login URL")
        if scope not in scopes:
            raise StoreForbidden(f"this token may not '{scope}'", hint="ask for a token that may")

    def _refuse(self, error: MulliganError) -> None:
        told = error_to_json(error)
        problem = {
            "type": f"urn:mulligan:error:{error.code}",
            "code": error.code,
            "detail": error.message,
            "hint": error.hint,
            "data": told.get("data", {}),
        }
        self._send(error.http_status, msgspec.json.encode(problem))

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header(PROCESS_HEADER, PROCESS)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that leaves in the middle is no trouble."""


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The URL of a server over the home in a folder."""
    handler = type("Handler", (_Handler,), {"home": Home(folder.absolute())})
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def working(folder: Path) -> Iterator[None]:
    """A worker over the home in a folder, in a thread of its own."""
    has_ended = threading.Event()

    def work() -> None:
        with Service(Home(folder.absolute())) as service, service.driving.driver() as driver:
            driver.serve(until=has_ended.is_set)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
