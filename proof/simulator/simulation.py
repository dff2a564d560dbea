"""The simulator: one random history of one random workflow, from one seed, with everything that can go wrong.

    Simulation(seed=42).run()      # raises AssertionError with the invariant that was broken

Real engines over real stores, virtual time, an executor that runs nothing, processes that die or are stopped, a store
that fails at any call. A history has a phase with faults, in which anything may happen at any moment, and one without,
in which every run must end. After every step the invariants of every run and of the store are checked. All chance
comes from the seed: the same seed gives the same logs, byte for byte.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from msgspec.structs import replace

from mulligan.core.model.actions import EVENT
from mulligan.core.model.codec import encode_log
from mulligan.core.model.events import Entry
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Workflow, encode
from mulligan.core.state.state import State
from mulligan.ports import fault_listeners
from mulligan.testing.faults import Faults
from proof.invariants.log_facts import format_entries
from proof.simulator.both_ways import both_ways
from proof.simulator.cluster.databases import LEASE_SECONDS
from proof.simulator.cluster.server_cluster import ClusterWithServers
from proof.simulator.cluster.simulated_cluster import SimulatedCluster
from proof.simulator.cluster.simulated_remote import ClusterWithRemoteWorkers
from proof.simulator.cluster.simulated_worker import SimulatedWorker
from proof.simulator.fault_budget import ALL_FAULTS, FaultBudget
from proof.simulator.fault_injection import FAULTS
from proof.simulator.hostile_client import HostileClient
from proof.simulator.simulation_steps import ALWAYS, SLOTS_ENOUGH, SOMETIMES, SimulationSteps, maps_of
from proof.simulator.themes import Theme, theme_of
from proof.simulator.workflows import random_workflow

RUN_ID = 1
EVENTS_MAX = 20_000
ROUNDS_MAX = 3
PLAGUES = 0.1
# How often others act before a call is answered, in a history about that.
DENSE = 0.2
# How often in a row it may happen that all processes run, time passes, and nothing changes.
IDLE_MAX = 12


class Simulation:
    """One history. Afterwards, everything that happened is in `cluster` and the logs."""

    def __init__(
        self,
        seed: object,
        workflow: Workflow | None = None,
        *,
        budget: FaultBudget = ALL_FAULTS,
        forks: bool = True,
        theme: Theme | None = None,
    ) -> None:
        self.theme = theme or theme_of(seed, budget.store)
        self.workflow = workflow or random_workflow(Random(f"workflow {seed}"), often=self.theme.often)
        if self.theme.is_remote:
            # Workers of two hosts share it.
            budget = replace(budget, store="shared")
        self.budget = budget
        self.forks = forks
        self.cluster = _cluster(self.theme, seed, budget)
        self.rng = self.cluster.rng
        self.points = Faults()
        self.player = SimulationSteps(self.cluster, budget.without, self.points)
        self.cluster.others = self.player.run_others
        self.hostile = HostileClient(seed, self.cluster, budget.without)
        self.engines_max = self.theme.engines or self.rng.choice((1, 2, 2, 3))
        if budget.engines_max is not None:
            self.engines_max = min(self.engines_max, budget.engines_max)
        # For reports: how often each kind of thing happened, the steps with faults, the kind of store.
        self.happened: Counter[str] = self.cluster.happened
        self.steps = 0
        self.store_kind: str = self.cluster.store_kind

    # -- the history -------------------------------------------------------------------------------------------------

    def run(self) -> Simulation:
        with self._at_fault_points(), both_ways():
            self._start()
            self._run_with_faults()
            self._run_to_end()
            while self._continues():
                self._run_with_faults()
                self._run_to_end()
            self._deliver_late_reports()
            self._finish()
            if isinstance(self.cluster, ClusterWithServers):
                self.cluster.send_all()
        self.cluster.checker.check_finished(self.cluster.live_workers)
        self.cluster.close()
        return self

    @contextmanager
    def _at_fault_points(self) -> Iterator[None]:
        listeners = (self.cluster.passed, self.points.passed)
        fault_listeners.extend(listeners)
        try:
            yield
        finally:
            for listener in listeners:
                fault_listeners.remove(listener)

    def check(self) -> None:
        """Check all invariants; called after every step."""
        self.cluster.check()

    def _start(self) -> None:
        """Start some processes, and a run with or without a driver; sometimes more runs."""
        for _ in range(self.engines_max):
            self.cluster.start(self.rng.choice(self.theme.slots or self.player.slots))
        for worker in list(self.cluster.workers):
            self.cluster.act(worker)
        self.check()
        holder = self.rng.choice((None, *self.cluster.workers))
        self.cluster.create(self.workflow, holder)
        for _ in range(self.rng.choice((0, 0, 0, 0, 0, 0, 1, 2))):
            self.cluster.create(self.workflow, holder)
        self.check()

    def _run_with_faults(self) -> None:
        names, weights = self._choose_steps()
        for _ in range(self._steps_now()):
            # Schedules and notices go on when all runs have ended.
            if self._is_over and not self.theme.has_servers:
                break
            self.steps += 1
            self.player.do(self.rng.choices(names, weights)[0])
            self.hostile.act()
            self.check()
            self._hear()

    def _hear(self) -> None:
        self.player.hear()
        self.hostile.hear()

    def _choose_steps(self) -> tuple[list[str], list[int]]:
        """Choose which steps and faults this history has."""
        rng, without = self.rng, self.budget.without
        sometimes = {name: weight for name, weight in SOMETIMES.items() if rng.random() < 0.4}
        sometimes.update(self.theme.steps)
        if rng.random() < PLAGUES:
            sometimes["lose_worker"] = 20
        allowed = {name: weight for name, weight in sometimes.items() if name not in without}
        kinds = [kind for kind in FAULTS if rng.random() < 0.5 and kind not in without]
        self.cluster.faults = [kind for kind in kinds if kind != "busy" or self.cluster.store_kind == "sqlite"]
        self.cluster.fault_share = rng.choice((0.0, 0.01, 0.03, 0.1))
        if self.theme.is_dense and "meanwhile" not in without:
            self.cluster.faults, self.cluster.fault_share = ["meanwhile"], DENSE
        chosen = {**ALWAYS, **allowed}
        if not _may_wait_for_events(self.workflow):
            del chosen["send"]
        return list(chosen), list(chosen.values())

    def _steps_now(self) -> int:
        count = self.rng.choice((5, 30, 80, 160))
        most = self.budget.steps_max
        return count if most is None else min(count, most - self.steps)

    @property
    def _is_over(self) -> bool:
        """Whether every run has ended, and so has every task that was leased while its run was stopped."""
        contents = self.cluster.contents
        return not (contents.messages or contents.leases) and all(run.has_ended for run in contents.runs.values())

    # -- without faults ----------------------------------------------------------------------------------------------

    def _run_to_end(self) -> None:
        """Let all processes run without faults until every run has ended."""
        self._end_faults()
        idle = 0
        while not self._is_over:
            if self.cluster.events > EVENTS_MAX:
                raise AssertionError(f"promise 10: the runs have not ended after {EVENTS_MAX} events")
            if self._work() or self.player.help():
                idle = 0
                continue
            idle += 1
            if idle > IDLE_MAX:
                raise AssertionError(self._what_is_left())
            self._pass_time(idle)

    def _what_is_left(self) -> str:
        """Say what no process does anything about."""
        contents = self.cluster.contents
        ended = [lease for lease in contents.leases if contents.runs[lease.run_id].has_ended]
        if ended:
            return f"promise 7: {ended[0]} is leased by '{ended[0].worker}', its run is over, and nobody ends the lease"
        return f"promise 10: no process has anything to do, and runs are {self._statuses()}"

    def _end_faults(self) -> None:
        self.points.disarm()
        self.cluster.end_faults()
        # On every host: a task with host affinity waits for its host.
        for host in self.cluster.hosts:
            if not any(_serves_all(worker) for worker in self.cluster.workers if worker.host == host):
                self.cluster.start(SLOTS_ENOUGH, host=host)

    def _work(self) -> bool:
        """Let each process run once and end all tasks; return whether anything changed."""
        before = self.cluster.events
        for worker in list(self.cluster.workers):
            if worker in self.cluster.workers:
                self.cluster.act(worker)
                self.check()
        if isinstance(self.cluster, ClusterWithServers):
            for server in list(self.cluster.servers):
                self.cluster.act_server(server)
                self.check()
        self._hear()
        return self.player.end_all_tasks() or self.cluster.events != before

    def _pass_time(self, idle: int) -> None:
        """Advance to the next timer, or until a dead worker can be expired."""
        left = self.cluster.seconds_to_next_timer()
        self.cluster.advance(max(0.0, left) if idle % 2 and left is not None else LEASE_SECONDS + 1)

    def _statuses(self) -> str:
        return ", ".join(f"{run.run_id} {run.status}" for run in self.cluster.contents.runs.values())

    # -- afterwards --------------------------------------------------------------------------------------------------

    def _continues(self) -> bool:
        """Whether to start another round, or a fork, of what has ended."""
        if self.forks and self.rng.random() < self.theme.forks and self.player.do("fork"):
            self.check()
            return True
        state = self.state
        is_open = state.run.status != "completed" or bool(maps_of(state))
        is_open = is_open and not self.player.is_refused_round(RUN_ID)
        if state.run.round >= ROUNDS_MAX or not is_open or self.rng.random() >= 0.5:
            return False
        self.cluster.operator.put(RUN_ID, self.player.another_round(RUN_ID))
        self.check()
        return True

    def _deliver_late_reports(self) -> None:
        """Deliver late reports to finished runs: they must change nothing."""
        before = self._rounds()
        for _ in range(3):
            self.player.repeat_report()
            self.player.ask_nonsense()
            self.player.fire_again()
        self.check()
        self._run_to_end()
        if self._rounds() != before:
            raise AssertionError("promise 1: a run that was over went on")

    def _rounds(self) -> list[int]:
        return [checked.state.run.round for checked in self.cluster.checker.runs.values()]

    def _finish(self) -> None:
        """Expire dead workers; sometimes let all processes leave."""
        if self.rng.random() < 0.3:
            for worker in self.cluster.workers[1:]:
                worker.is_leaving = True
        for _ in range(IDLE_MAX):
            contents = self.cluster.contents
            is_anybody_going = any(map(_is_leaving, self.cluster.workers))
            # A process that just came back may have taken a finished run, and will notice.
            is_let_go = not any(run.has_ended and run.holder for run in contents.runs.values())
            if not is_anybody_going and is_let_go and contents.workers.keys() <= self.cluster.live_workers:
                return
            self._work()
            self.cluster.advance(LEASE_SECONDS + 1)

    # -- results -----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """Return the first run, folded from its log."""
        return self.cluster.checker.runs[RUN_ID].state

    @property
    def status(self) -> str:
        return self.state.run.status

    @property
    def log(self) -> list[Entry]:
        """Return the log of the first run."""
        return self.cluster.checker.runs[RUN_ID].log

    def logs(self) -> list[list[Entry]]:
        """Return all logs, in the order of their run ids."""
        return [checked.log for _, checked in sorted(self.cluster.checker.runs.items())]

    def log_bytes(self) -> bytes:
        """Return the logs as text, to compare histories."""
        return b"".join(encode_log(log) for log in self.logs())

    def last_facts(self, count: int = 30) -> str:
        return format_entries(self.log[-count:])


def _cluster(theme: Theme, seed: object, budget: FaultBudget) -> SimulatedCluster:
    if theme.has_servers:
        return ClusterWithServers(seed, budget)
    return (ClusterWithRemoteWorkers if theme.is_remote else SimulatedCluster)(seed, budget)


def _serves_all(worker: SimulatedWorker) -> bool:
    return worker.root_run_id is None and worker.slots >= SLOTS_ENOUGH and not worker.is_leaving


def _is_leaving(worker: SimulatedWorker) -> bool:
    return worker.is_leaving or worker.root_run_id is not None


def _may_wait_for_events(workflow: Workflow) -> bool:
    """Whether a step of the workflow, or of one that it calls, waits for an event. What a program does is not known."""
    return EVENT.encode() in encode(workflow) or Graph(workflow).program != ""
