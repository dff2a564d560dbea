"""Workers over HTTP in a simulated cluster: the client's store and transport, the server's side of every call.

Everything is real but the socket. An exchange may be lost on its way, its answer may be lost, and the server may be
started again in between; then the transport asks again, or says that it does not know. The store behind the server
fails as the stores of all processes do.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import msgspec

from mulligan.engine.engine import Engine
from mulligan.errors import MulliganError
from mulligan.ports import Store
from mulligan.service.runs.changes.changes import Changes
from mulligan.service.server.store_calls import (
    CALL_HEADER,
    CALLS,
    PROCESS,
    PROCESS_HEADER,
    PROTOCOL_HEADER,
    HeartbeatJudge,
    StoreCalls,
)
from mulligan.store.http.http_connection import HttpTransport
from mulligan.store.http.http_store import HttpStore
from mulligan.testing.faults import Crash
from proof.simulator.cluster.databases import LEASE_SECONDS
from proof.simulator.cluster.execution_recorder import HeartbeatRecorder
from proof.simulator.cluster.simulated_cluster import SimulatedCluster
from proof.simulator.cluster.simulated_worker import SimulatedWorker

if TYPE_CHECKING:
    from http.client import HTTPConnection

# What may happen to an exchange.
_LOST = ("lost request", "lost response", "restart before", "restart after")
# How often that happens where calls of the store fail at all.
_LOST_SHARE = 0.15
# The host of workers that take part over HTTP.
REMOTE_HOST = "h2"


class RemoteWorker(SimulatedWorker):
    """Does as `service.driver` does for a home on a server: the server judges other workers."""

    def _expire_dead_workers(self, engine: Engine) -> None:
        pass


class ClusterWithRemoteWorkers(SimulatedCluster):
    """Every worker on the second host takes part over HTTP, except commands that drive one run."""

    server_number = 0
    judge: HeartbeatJudge | None = None

    def start(
        self, slots: int, root_run_id: int | None = None, message_id: int | None = None, host: str = ""
    ) -> SimulatedWorker:
        host = host or self.rng.choice(self.hosts)
        is_remote = (
            host == REMOTE_HOST and slots > 0 and root_run_id is None and message_id is None and bool(self.workers)
        )
        if not is_remote:
            return super().start(slots, root_run_id, message_id, "h1" if host == REMOTE_HOST else host)
        worker = RemoteWorker(self, host, slots)
        self.workers.append(worker)
        return worker

    def can_drive(self, worker: SimulatedWorker) -> bool:
        """Over HTTP nobody drives a run."""
        return not isinstance(worker, RemoteWorker)

    def connect(self, worker: SimulatedWorker) -> Store:
        inside = super().connect(worker)
        if not isinstance(worker, RemoteWorker):
            return inside
        over_http = HttpStore(
            transport=_Transport(_Connection(self, inside)),
            is_worker=True,
            lease_seconds=LEASE_SECONDS,
            monotonic=worker.clock.monotonic,
        )
        self._heartbeats[worker] = HeartbeatRecorder(cast(Store, over_http), worker.clock, LEASE_SECONDS)
        return cast(Store, self._heartbeats[worker])

    def heartbeat_judge(self) -> HeartbeatJudge:
        """Return that of the server that runs now. Its host is none of those that the workers are on."""
        if self.judge is None:
            self.judge = HeartbeatJudge(self.clock.elapsed, kill_leftovers=lambda name: None)
        return self.judge

    def restart_server(self) -> None:
        """Start the server again: it remembers no answer, and has taken no heartbeat."""
        self.server_number += 1
        self.judge = None

    def next_loss(self) -> str:
        """Return what happens to the next exchange, or ""."""
        if not self.faults or self.rng.random() >= _LOST_SHARE:
            return ""
        loss = self.rng.choice(_LOST)
        self.happened[loss] += 1
        return loss


class _Transport(HttpTransport):
    """The real one, over a connection of ours. Nobody waits for changes: every look finds some."""

    def __init__(self, connection: _Connection) -> None:
        super().__init__("http://server", token="")
        self._simulated = cast("HTTPConnection", connection)

    def _kept_connection(self) -> HTTPConnection:
        return self._simulated

    def begin_wait(self, since: int) -> int | None:
        return None

    def end_wait(self) -> int | None:
        return None


class _Answer:
    """What `http.client` gives: status, headers, and a body to read."""

    def __init__(self, status: int, process: str, body: bytes) -> None:
        self.status = status
        self.headers = {PROCESS_HEADER: process}
        self._body = body

    def read(self) -> bytes:
        return self._body


class _Connection:
    """What is sent is answered by the server's side, as a function; or lost, which is an `OSError`."""

    def __init__(self, cluster: ClusterWithRemoteWorkers, store: Store) -> None:
        self._cluster = cluster
        home = SimpleNamespace(lease_seconds=LEASE_SECONDS, folders=SimpleNamespace(work="/server/work"))
        reader = SimpleNamespace(store=store, home=home)
        self._changes = cast(Changes, SimpleNamespace(reader=reader, by="someone"))
        self._answer: _Answer | None = None

    def request(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        self._answer = None
        loss = self._cluster.next_loss()
        answer = self._perform(path, body, headers) if loss in ("", "lost response", "restart after") else None
        if loss.startswith("restart"):
            self._cluster.restart_server()
        if loss:
            raise ConnectionResetError("the connection was reset")
        self._answer = answer

    def getresponse(self) -> _Answer:
        assert self._answer is not None
        return self._answer

    def close(self) -> None: ...

    def _perform(self, path: str, body: bytes, headers: Mapping[str, str]) -> _Answer:
        scope, name = path.split("/")[-2:]
        assert CALLS[name].scope == "worker", f"a worker asked for '{name}'"
        process = self._process
        wanted, call_id = headers.get(PROCESS_HEADER, ""), headers.get(CALL_HEADER, "")
        calls = StoreCalls(self._changes, judge=self._cluster.heartbeat_judge())
        try:
            data = calls.answer(
                scope,
                name,
                body,
                protocol=headers.get(PROTOCOL_HEADER, ""),
                # A server that was started again knows no earlier call.
                call_id=f"{process} {call_id}" if call_id else "",
                process=PROCESS if wanted == process else wanted,
            )
        except MulliganError as error:
            problem = {
                "type": f"urn:mulligan:error:{error.code}",
                "code": error.code,
                "detail": error.message,
                "hint": error.hint or "",
            }
            return _Answer(error.http_status, process, msgspec.json.encode(problem))
        except Crash:
            if self._cluster.rng.random() < 0.5:
                raise
            # The server died, not the worker.
            self._cluster.happened["crash of the server"] += 1
            self._cluster.restart_server()
            raise ConnectionResetError("the connection was reset") from None
        return _Answer(200, process, data)

    @property
    def _process(self) -> str:
        return f"server {self._cluster.server_number}"
