"""Workers over HTTP in the simulator: real engines, a store that fails at any call, processes that die at any moment.

The calls go through the table and the server's side of it, without a network: every call of the store behind the server
may fail before or after it has taken effect, and so does the whole exchange.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from mulligan.core.model.workflow import Workflow
from mulligan.engine.engine import Engine
from mulligan.ports import Store
from mulligan.service.run_control import RunControl
from mulligan.service.store_calls import HeartbeatJudge, StoreCalls
from mulligan.store.http_calls import CALLS, PROTOCOL
from mulligan.store.http_store import HttpStore
from mulligan.testing.databases import LEASE_SECONDS
from mulligan.testing.execution_recorder import HeartbeatRecorder
from mulligan.testing.fault_budget import FaultBudget
from mulligan.testing.simulated_cluster import SimulatedCluster
from mulligan.testing.simulated_worker import SimulatedWorker
from mulligan.testing.simulator import Simulation


class Direct:
    """Calls the server's side as a function. JSON in between, as over HTTP."""

    def __init__(self, store: Store, counts: Counter[str], judge: HeartbeatJudge) -> None:
        reader = SimpleNamespace(store=store, home=SimpleNamespace(lease_seconds=LEASE_SECONDS))
        self._calls = StoreCalls(cast(RunControl, SimpleNamespace(reader=reader, by="someone")), judge=judge)
        self._counts = counts

    def call(self, name: str, body: bytes) -> bytes:
        assert CALLS[name].scope == "worker", f"a worker asked for '{name}'"
        self._counts[name] += 1
        return self._calls.answer("worker", name, body, protocol=str(PROTOCOL))

    def upload(self, query: Mapping[str, str], data: bytes) -> bytes:
        return msgspec.json.encode(query["name"])

    def begin_wait(self, since: int) -> int | None:
        return None

    def end_wait(self) -> int | None:
        return None

    def close(self) -> None: ...


class RemoteWorker(SimulatedWorker):
    """Does as `service.driver` does for a home on a server: the server judges other workers."""

    def _expire_dead_workers(self, engine: Engine) -> None:
        pass


class ClusterWithRemoteWorkers(SimulatedCluster):
    """Every worker on the second host takes part over HTTP, except commands that drive one run."""

    calls: Counter[str]
    judge: HeartbeatJudge

    def start(
        self, slots: int, root_run_id: int | None = None, message_id: int | None = None, host: str = ""
    ) -> SimulatedWorker:
        host = host or self.rng.choice(self.hosts)
        is_remote = host == "h2" and slots > 0 and root_run_id is None and message_id is None and bool(self.workers)
        if not is_remote:
            return super().start(slots, root_run_id, message_id, "h1" if host == "h2" else host)
        worker = RemoteWorker(self, host, slots)
        self.workers.append(worker)
        return worker

    def create(self, workflow: Workflow, holder: SimulatedWorker | None = None, **request: Any) -> int:
        """Over HTTP nobody drives a run."""
        return super().create(workflow, None if isinstance(holder, RemoteWorker) else holder, **request)

    def connect(self, worker: SimulatedWorker) -> Store:
        inside = super().connect(worker)
        if not isinstance(worker, RemoteWorker):
            return inside
        if not hasattr(self, "calls"):
            self.calls = Counter()
            # The host of the server is none of those that the workers are on.
            self.judge = HeartbeatJudge(self.clock.elapsed, kill_leftovers=lambda _: None)
        over_http: Any = HttpStore(
            transport=Direct(inside, self.calls, self.judge),
            is_worker=True,
            lease_seconds=LEASE_SECONDS,
            monotonic=worker.clock.monotonic,
        )
        over_http.has_changes = lambda: over_http._send_what_waits() or True
        self._heartbeats[worker] = HeartbeatRecorder(over_http, worker.clock, LEASE_SECONDS)
        return cast(Store, self._heartbeats[worker])


class RemoteSimulation(Simulation):
    def __init__(self, seed: object) -> None:
        budget = FaultBudget(store="shared")
        super().__init__(seed, budget=budget)
        self.cluster.close()
        self.cluster = ClusterWithRemoteWorkers(seed, budget)
        self.rng = self.cluster.rng
        self.player.cluster = self.cluster
        self.cluster.others = self.player.run_others
        self.happened = self.cluster.happened
        self.engines_max = max(self.engines_max, 3)


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_lost_or_done_twice_by_workers_over_http(seed: int) -> None:
    simulation = RemoteSimulation(seed)

    simulation.run()

    assert simulation.cluster.events
