"""A stage on which a server, its background process and workers run beside each other, and one of them dies."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from mulligan.core.state.transitions import RUN_ENDED
from mulligan.ports import RunRecord
from mulligan.service.driving.local_worker import open_driver
from mulligan.service.service import Service
from proof.chaos.http_client import Address, last_address
from proof.crashes.faults import Fault
from proof.crashes.forked_processes import ForkedProcess, ForkedProcesses
from proof.stage import DEADLINE_SECONDS, LOOK_SECONDS, Stage, wait_until

# The shortest that counts as usual for these trials: what a dead remote worker had comes back so late.
LEASE_SECONDS = 2.0
ANSWER_SECONDS = 20.0
# A change whose answer was lost is asked for again: these say that it was made, or cannot be made any more.
DONE = frozenset({200, 201, 202, 204})
ALREADY = frozenset({409, 412})


class Unanswered(Exception):
    """The server died before it answered."""


class Place(NamedTuple):
    """Where a process stands on the stage: it is started again there when its moment has come."""

    name: str
    program: str
    words: tuple[object, ...]
    environment: dict[str, str]


class ServedStage:
    """The processes of one trial. The one with the fault is started again, without it, as soon as it is dead."""

    def __init__(self, stage: Stage, processes: ForkedProcesses) -> None:
        self.stage = stage
        self.has_happened = False
        # Called when the process with the fault is dead, before the next one takes its place.
        self.died: Callable[[], None] = lambda: None
        self._processes = processes
        self._places: dict[str, Place] = {}
        self._running: dict[str, ForkedProcess] = {}
        self._doomed = ""
        self._ending: set[str] = set()
        stage.environment["MULLIGAN_LEASE"] = f"{LEASE_SECONDS:g}s"

    def start(
        self,
        name: str,
        *words: object,
        program: str = "mulligan",
        fault: Fault | None = None,
        environment: dict[str, str] | None = None,
        ends: bool = False,
    ) -> ForkedProcess:
        """`ends`: it comes to its end by itself, and is not started again."""
        self._places[name] = Place(name, program, words, environment or {})
        if fault is not None and not ends:
            self._doomed = name
        if ends:
            self._ending.add(name)
        return self._start(name, fault)

    def _start(self, name: str, fault: Fault | None = None) -> ForkedProcess:
        _, program, words, environment = self._places[name]
        found = self._processes.start(self.stage, name, *words, program=program, fault=fault, environment=environment)
        self._running[name] = found
        return found

    def look(self) -> None:
        """Start again what has died of its fault. Nothing else may die."""
        for name, process in list(self._running.items()):
            if process.is_alive or name in self._ending:
                continue
            if name == self._doomed and process.has_met_its_moment and not self.has_happened:
                self.has_happened = True
                self.died()
                self._start(name)
            elif not process.is_alive:
                raise AssertionError(f"'{name}' has ended by itself: {process.said()}")

    @property
    def pids(self) -> set[int]:
        """Of all that run now."""
        return {process.pid for process in self._running.values() if process.is_alive}

    def wait_until(self, is_so: Callable[[], Any], otherwise: str | Callable[[], str]) -> Any:
        """Look after the processes until it is so."""

        def looked() -> Any:
            self.look()
            return is_so()

        return wait_until(looked, otherwise)

    def end(self) -> list[str]:
        """End all in order, the last one first; what is wrong with it, and what they wrote that nobody should read."""
        self.look()
        wrong = []
        for name, process in reversed(self._running.items()):
            wrong += [f"'{name}': {said}" for said in (process.end(),) if said]
        for name in self._running:
            said = (self.stage.folder / f"{name}.err").read_text()
            if "Traceback (most recent call last)" in said or "internal.bug" in said:
                wrong.append(f"'{name}' wrote: {said}")
        return wrong

    def kill(self) -> None:
        for process in self._running.values():
            process.kill()

    # -- what a client does

    def address(self) -> Address:
        """Where the server answers now: each start has a port and a token of its own."""
        found: Address = self.wait_until(lambda: last_address(self._running["server"].out), "no server answers")
        return found

    def change(
        self, method: str, path: str, body: Any, key: str = "", headers: Mapping[str, str] = {}
    ) -> tuple[int, Any]:
        """Ask until it is answered; status and answer. Asked again it may be refused: it was done before.

        `headers`: with which somebody asks who has no token.
        """
        is_again = False
        until = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < until:
            try:
                status, answer = self._ask(self.address(), method, path, body, key, headers)
            except (OSError, http.client.HTTPException):
                is_again = True
                self.look()
                time.sleep(LOOK_SECONDS)
                continue
            if status in DONE or (is_again and status in ALREADY):
                return status, answer
            if status not in (401, 503):
                raise AssertionError(f"{method} {path} was answered with {status}: {answer}")
            time.sleep(LOOK_SECONDS)
        raise AssertionError(f"{method} {path} is never answered")

    def _ask(
        self, address: Address, method: str, path: str, body: Any, key: str, others: Mapping[str, str]
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(address.host, address.port, timeout=ANSWER_SECONDS)
        sent = {"Content-Type": "application/json"}
        sent |= others or {"Authorization": f"Bearer {address.token}"}
        try:
            sent |= {"Idempotency-Key": key} if key else {}
            connection.request(method, path if path.startswith("/") else f"/api/v1/{path}", json.dumps(body), sent)
            reply = connection.getresponse()
            text = reply.read()
            return reply.status, json.loads(text) if text else None
        finally:
            connection.close()


def runs_of(service: Service) -> list[RunRecord]:
    """All runs, the oldest first."""
    return list(reversed(service.reader.runs(limit=100)))


def has_ended(service: Service, run_id: int) -> bool:
    return service.reader.record(run_id).status in RUN_ENDED


def expire_the_dead(service: Service) -> None:
    """When all processes have ended: what one that was killed at its very end has left is found by the next worker."""
    store = service.reader.store

    def is_nobody_left() -> bool:
        if store.workers():
            # A worker that comes, expires the dead, and goes.
            with open_driver(service.reader):
                pass
        return not store.workers()

    wait_until(is_nobody_left, lambda: f"a dead worker is kept: {store.workers()}")


class Received(NamedTuple):
    """A notice that arrived."""

    key: str
    event: str
    run_id: int


@contextmanager
def receiving() -> Iterator[tuple[str, list[Received]]]:
    """A target for notices: its address, and what it got."""
    received: list[Received] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            event = json.loads(self.rfile.read(int(self.headers["content-length"])))
            received.append(Received(self.headers["webhook-id"], event["type"], event["data"].get("run_id", 0)))
            self.send_response(204)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
