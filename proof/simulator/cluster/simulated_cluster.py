"""A simulated cluster: processes with real engines, each with its own connection to one real store, under faults.

Time is virtual and common to all; wall clocks may be wrong. Nothing happens by itself: `act` lets one process run its
loop once, and while it does, the fault plan may let others act between any two of its calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from datetime import timedelta
from random import Random
from typing import Any, cast

from mulligan.core.model.graph import Graph
from mulligan.core.model.reports import RunRequested
from mulligan.core.model.workflow import Workflow, encode, version
from mulligan.ports import Evaluator, NewRun, Store
from mulligan.testing.clock import JumpingClock, WallClock
from mulligan.testing.faults import Crash
from proof.invariants.reuse_checks import ReuseChecks
from proof.invariants.timer_checks import CountedClock, TimerChecks
from proof.simulator.cluster.databases import DATABASES, LEASE_SECONDS
from proof.simulator.cluster.execution_recorder import ExecutionRecorder, HeartbeatRecorder, Outage, WorkerSearch
from proof.simulator.cluster.simulated_worker import BEATS_PER_LEASE, SimulatedWorker
from proof.simulator.cluster.simulated_worktrees import SimulatedWorktrees
from proof.simulator.fault_budget import STORE_KINDS, FaultBudget
from proof.simulator.fault_injection import with_faults
from proof.simulator.invariant_checker import InvariantChecker
from proof.simulator.workflows import SECRET, RandomEvaluator

# How long one round of a loop takes.
ROUND_SECONDS = 0.03
BEAT_SECONDS = LEASE_SECONDS / BEATS_PER_LEASE
# How many processes may act inside one another.
DEPTH_MAX = 2
# What every run is started with, unless something else is said.
INPUTS = {"target": "staging"}
# An answer is delivered once: if it is lost on its way, no invariant is broken.
_NEVER_FAULTY = frozenset({"answer", "close"})


class SimulatedCluster:
    """All processes, hosts and clocks. `happened` counts all faults."""

    def __init__(self, seed: object, budget: FaultBudget) -> None:
        self.rng = Random(f"history {seed}")
        self.budget = budget
        self.clock = JumpingClock()
        dice = Random(f"world {seed}")
        # A history on SQLite takes as long as two others.
        self.store_kind = budget.store or dice.choices(STORE_KINDS, (2, 2, 1))[0]
        self.database = DATABASES[self.store_kind]()
        self.evaluator: Evaluator = RandomEvaluator(seed)
        self.starts_at_once = dice.choice((1, 2, 1000, 1000))
        self.workflows: dict[str, tuple[Workflow, Graph]] = {}
        self.hosts = ("h1", "h2") if self.database.is_shared else ("h1",)
        self._walls = {host: WallClock(self.clock) for host in self.hosts}
        # Operators and the checker have connections without faults.
        self.operator = self.database.open(self.clock)
        self.checker = InvariantChecker(
            self.database.open(self.clock),
            self.database.read_contents,
            self.database.raw_values,
            secret=SECRET,
            starts_at_once=self.starts_at_once,
        )
        self.contents = self.checker.check_new()
        self.timer_checks = TimerChecks(self.clock.monotonic, is_shared=self.database.is_shared)
        self.recorder = ExecutionRecorder(
            self.database, LEASE_SECONDS if self.database.is_shared else None, self.timer_checks
        )
        self.reuse_checks = ReuseChecks(self.checker.facts_now)
        self.worktrees = SimulatedWorktrees(self.checker.state_now)
        self.workers: list[SimulatedWorker] = []
        self.happened: Counter[str] = Counter()
        # The faults, how often they happen, and what other processes do meanwhile.
        self.faults: list[str] = []
        self.fault_share = 0.0
        self.others: Callable[[], object] = lambda: None
        # Until then no process reaches the store.
        self._outage: Outage | None = None
        self._connections: dict[SimulatedWorker, Store] = {}
        self._heartbeats: dict[SimulatedWorker, HeartbeatRecorder] = {}
        self._acting: list[SimulatedWorker] = []
        # All workers that ever existed, with their hosts.
        self._names: dict[str, str] = {}
        self._bugs: list[str] = []
        self._seen_version = -1
        self._created = 0
        self._has_crashed = False

    def close(self) -> None:
        for connection in (*self._connections.values(), self.operator, self.checker.store):
            connection.close()
        self.database.close()

    # -- processes ---------------------------------------------------------------------------------------------------

    def start(
        self, slots: int, root_run_id: int | None = None, message_id: int | None = None, host: str = ""
    ) -> SimulatedWorker:
        """Start one more process, on this host or on any."""
        worker = SimulatedWorker(
            self, host or self.rng.choice(self.hosts), slots, root_run_id=root_run_id, message_id=message_id
        )
        self.workers.append(worker)
        return worker

    def act(self, worker: SimulatedWorker) -> None:
        """Let a process run its loop once. If it dies, its connection and everything that it ran are gone."""
        self.clock.advance(ROUND_SECONDS)
        self._acting.append(worker)
        try:
            worker.step()
        except Crash as crash:
            self.happened[f"crash {crash.point}"] += 1
            self.drop(worker)
        finally:
            self._acting.pop()
        if worker.has_left:
            self._remove(worker)

    def drop(self, worker: SimulatedWorker) -> None:
        """Kill it, so that others may find its lock free."""
        worker.lock = ""
        self._has_crashed = True
        self._remove(worker)

    def _remove(self, worker: SimulatedWorker) -> None:
        self.workers.remove(worker)
        self._connections.pop(worker).close()
        del self._heartbeats[worker]

    @property
    def runnable(self) -> list[SimulatedWorker]:
        """Return the processes that can act now."""
        now = self.clock.monotonic()
        return [one for one in self.workers if one.frozen_until <= now and one not in self._acting]

    @property
    def idle(self) -> list[SimulatedWorker]:
        """Return the processes that are not in the middle of something."""
        return [worker for worker in self.workers if worker not in self._acting]

    @property
    def live_workers(self) -> set[str]:
        return {worker.name for worker in self.workers if worker.lock}

    # -- the environment of processes --------------------------------------------------------------------------------

    def connect(self, worker: SimulatedWorker) -> Store:
        """Connect with the clock of its host; a shared store has its own clock."""
        clock = self.clock if self.database.is_shared else worker.clock
        self._connections[worker] = self.database.open(clock)
        seen = with_faults(self.recorder.wrap(self._connections[worker], self.clock, worker), self)
        self._heartbeats[worker] = HeartbeatRecorder(seen, worker.clock, LEASE_SECONDS)
        return cast(Store, self._heartbeats[worker])

    def wall_clock(self, host: str) -> CountedClock:
        """Return the clock of a process that starts now on this host."""
        return CountedClock(self._walls[host].now, self.clock.monotonic)

    def new_name(self, host: str) -> str:
        name = f"{host}.{len(self._names) + 1}"
        self._names[name] = host
        return name

    def host_of(self, name: str) -> str:
        return self._names[name]

    def is_free(self, lock: str) -> bool:
        return all(worker.lock != lock for worker in self.workers)

    def search(self, worker: SimulatedWorker) -> WorkerSearch:
        """Return what this process can find dead by locks on its host; and the time, if heartbeats count."""
        here = frozenset(name for name, at in self._names.items() if at == worker.host)
        return WorkerSearch(
            here - self.live_workers, self.clock.now() if self._heartbeats[worker].are_continuous else None
        )

    def report_bug(self, message: str) -> None:
        self._bugs.append(message)

    def note_answer(self, message_id: int) -> None:
        self.checker.note_fetched(message_id)

    # -- faults ------------------------------------------------------------------------------------------------------

    def next_fault(self, method: str) -> str:
        if self._is_away and method != "close":
            return "lost_call"
        if not self.faults or self.rng.random() >= self.fault_share or method in _NEVER_FAULTY:
            return ""
        kind = self.rng.choice(self.faults)
        self.happened[kind] += 1
        return kind

    def run_others(self) -> None:
        if len(self._acting) < DEPTH_MAX:
            self.others()

    def delay(self) -> None:
        self.advance(self.rng.choice((0.5, 3, 12, 45)))

    def run_while_locked(self, call: Callable[[], Any]) -> Any:
        with self.database.hold_lock():
            return call()

    def passed(self, point: str) -> None:
        """Let others act at a fault point."""
        if "meanwhile" in self.faults and self.rng.random() < self.fault_share:
            self.happened["meanwhile"] += 1
            self.run_others()

    def begin_outage(self, seconds: float) -> None:
        """Let no process reach the store for this long."""
        now = self.clock.now()
        self._outage = Outage(now, now + timedelta(seconds=seconds))

    def end_outage(self) -> None:
        """End the outage now, or when it was due to end."""
        if self._outage is not None:
            self.recorder.note_outage(Outage(self._outage.began, min(self._outage.ended, self.clock.now())))
        self._outage = None

    @property
    def _is_away(self) -> bool:
        if self._outage is not None and self._outage.ended <= self.clock.now():
            self.end_outage()
        return self._outage is not None

    def set_clock(self, host: str, wrong_seconds: float) -> None:
        self._walls[host].set_wrong(wrong_seconds)

    def end_faults(self) -> None:
        """End all faults: the store works, clocks are right, no process is stopped."""
        self.faults = []
        self.end_outage()
        for wall in self._walls.values():
            wall.set_wrong(0.0)
        for worker in self.workers:
            worker.frozen_until = 0.0

    def seconds_to_next_timer(self) -> float | None:
        """Return how long the engines wait for the next timer; None if there is none."""
        found = ((run_id, one.time_of(run_id)) for one in self.workers for run_id in self.contents.runs)
        nows = {run_id: now for run_id, now in found if now is not None}
        self.timer_checks.check_waiting(self.contents.timers, nows, self.clock.now())
        dues = ((one.clock.now(), one.engine.next_due()) for one in self.workers if one.engine is not None)
        return min(((due - now).total_seconds() for now, due in dues if due is not None), default=None)

    def advance(self, seconds: float) -> None:
        """Let time pass in which only heartbeats are sent: often, in the last two leases."""
        often = min(seconds, 2 * LEASE_SECONDS) if self.database.is_shared else 0.0
        self._advance(seconds - often)
        while often > 0:
            self._advance(min(often, BEAT_SECONDS))
            often -= BEAT_SECONDS

    def _advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        faults, self.faults = self.faults, []
        for worker in self.runnable:
            worker.keep_alive()
        self.faults = faults

    # -- runs --------------------------------------------------------------------------------------------------------

    def create(self, workflow: Workflow, holder: SimulatedWorker | None = None, **request: Any) -> int:
        """Create a run; a holder that is up holds it at once, as `mulligan run` does."""
        data = encode(workflow)
        self._created += 1
        asked = RunRequested(
            self.clock.now(),
            0,
            request.pop("inputs", INPUTS),
            version=version(data),
            by="someone",
            uid=f"run {self._created}",
            **request,
        )
        new = NewRun(data, asked.version, workflow.name, asked)
        is_held = (
            holder is not None
            and holder.engine is not None
            and holder.name in self.contents.workers
            and self.can_drive(holder)
        )
        (turn,) = self.operator.create([new], holder.name if holder is not None and is_held else "")
        if is_held and holder is not None and holder.engine is not None:
            holder.engine.begin([turn], [new])
        return turn.run_id

    def can_drive(self, worker: SimulatedWorker) -> bool:
        """Whether a worker may hold the turns of runs."""
        return True

    def check(self) -> None:
        """Check what is new; after a crash also that the tables agree with the logs."""
        version_now = self.database.version()
        if version_now != self._seen_version:
            self._seen_version = version_now
            self.contents = self.checker.check_new()
        if self._has_crashed:
            self._has_crashed = False
            self.checker.check_tables()
        self.recorder.check(self.contents)
        for checks in (self.recorder, self.timer_checks, self.reuse_checks, self.worktrees):
            if checks.violations:
                raise AssertionError(checks.violations[0])
        self.worktrees.check_names([checked.state for checked in self.checker.runs.values()])
        if self._bugs:
            raise AssertionError(f"promise 10: an engine found a bug: {self._bugs[0]}")

    @property
    def events(self) -> int:
        return sum(len(checked.log) for checked in self.checker.runs.values())

    def roots(self) -> Collection[int]:
        return [run.run_id for run in self.contents.runs.values() if run.parent_run_id is None]
