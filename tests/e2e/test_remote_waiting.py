"""A remote worker waits while something else answers in the place of its server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mulligan.core.state.transitions import RUN_ENDED
from mulligan.service.home import Home
from mulligan.service.server.tokens.tokens import TokenForm
from mulligan.service.service import Service

_MULLIGAN = (sys.executable, "-P", "-m", "mulligan")
TEXT = "name: there\nsteps: [{step: a, shell: 'true', resources: {labels: [there]}}]\n"
PAGES = (
    *((500, b"oops"), (404, b"<html>no such page</html>"), (200, b"<html>log in</html>"), (502, b""), (302, b"")),
    # As a gateway says it, in the same form as our errors.
    *((404, b'{"detail": "no route", "code": "route"}'), (401, b'{"detail": "no session", "code": "invalid"}')),
)


def until(is_so: Callable[[], Any]) -> None:
    """Wait for something that another process does; a test that waits for long fails by its assertion."""
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Server:
    """A server of one home, which is started again at the same port."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MULLIGAN_")}
        self.environment = {**kept, "MULLIGAN_LEASE": "5s"}
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = [*_MULLIGAN, "server", "--home", str(self.home), "--port", str(self.port), "--json"]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=self.environment)
        assert self._process.stdout is not None
        self.url = msgspec.json.decode(self._process.stdout.readline())["url"]
        self.port = int(self.url.rpartition(":")[2])

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.communicate()
        self._process = None


@contextmanager
def pages(port: int) -> Iterator[list[int]]:
    """What stands in the place of the server: a page for every request, in turn. The statuses that were answered."""
    answered: list[int] = []

    class Page(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, body = PAGES[len(answered) % len(PAGES)]
            answered.append(status)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.answer()

        def do_POST(self) -> None:
            self.answer()

        def log_message(self, *_: object) -> None:
            pass

    standing_in = ThreadingHTTPServer(("127.0.0.1", port), Page)
    standing_in.daemon_threads = True
    thread = threading.Thread(target=standing_in.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield answered
    finally:
        standing_in.shutdown()
        standing_in.server_close()
        thread.join()


@pytest.mark.nightly
def test_a_worker_that_was_registered_waits_for_any_answer_of_its_server(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.start()
    with Service(Home(server.home)) as service:
        service.catalogue.publish("there", TEXT)
        token = service.tokens.create(TokenForm(user="builder", scopes=("worker",))).secret
        words = [*_MULLIGAN, "worker", "--server", server.url, "--home", str(tmp_path / "other"), "--labels", "there"]
        worker = subprocess.Popen(
            words, stderr=subprocess.PIPE, env={**server.environment, "MULLIGAN_TOKEN": token}, text=True
        )
        try:
            until(lambda: any("there" in one.labels for one in service.reader.store.workers()))
            server.stop()
            with pages(server.port) as answered:
                until(lambda: len(answered) > 2 * len(PAGES) or worker.poll() is not None)
            server.start()
            run_id = service.changes.start(service.catalogue.prepare("there"), "after").run_id
            until(lambda: service.reader.record(run_id).status in RUN_ENDED or worker.poll() is not None)
            ended = service.reader.record(run_id).status
        finally:
            worker.send_signal(signal.SIGTERM)
            _, said = worker.communicate()
            server.stop()

    assert (ended, worker.returncode) == ("completed", 0), said
    assert "waiting for it" in said
