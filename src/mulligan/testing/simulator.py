"""The simulator: one random history of one random workflow, from one seed, with everything that can go wrong.

    Simulation(seed=42).run()      # raises AssertionError with the promise that was broken

Real engines over real stores, virtual time, hands that run nothing, processes that die or are stopped, a store that
fails at any call. A history has a wild part, in which anything happens at any moment, and a tame one, in which
everybody does their duty and every run must end. After every move the promises are asked, of every run and of the
store. All chance comes from the seed: the same seed gives the same logs, byte for byte.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from mulligan.core.model.codec import encode_log
from mulligan.core.model.events import Entry
from mulligan.core.model.workflow import Workflow
from mulligan.core.state.state import State
from mulligan.ports import fault_listeners
from mulligan.testing.databases import LEASE_SECONDS
from mulligan.testing.fault_budget import ALL_FAULTS, FaultBudget
from mulligan.testing.fault_injection import FAULTS
from mulligan.testing.faults import Faults
from mulligan.testing.log_facts import format_entries
from mulligan.testing.simulated_cluster import SimulatedCluster
from mulligan.testing.simulated_worker import SimulatedWorker
from mulligan.testing.simulation_steps import ALWAYS, SLOTS_ENOUGH, SOMETIMES, SimulationSteps, maps_of
from mulligan.testing.themes import Theme, theme_of
from mulligan.testing.workflows import random_workflow

RUN_ID = 1
EVENTS_MAX = 20_000
ROUNDS_MAX = 3
PLAGUES = 0.1
# How often others act before a call is answered, in a history that is about that.
DENSE = 0.2
# How often in a row nothing may come of it that everybody did their duty and time passed.
IDLE_MAX = 12


class Simulation:
    """One history. Everything that happened is in `world` and the logs afterwards."""

    def __init__(
        self,
        seed: object,
        workflow: Workflow | None = None,
        *,
        budget: FaultBudget = ALL_FAULTS,
        forks: bool = True,
        theme: Theme | None = None,
    ) -> None:
        self.theme = theme or theme_of(seed)
        self.workflow = workflow or random_workflow(Random(f"workflow {seed}"), often=self.theme.often)
        self.budget = budget
        self.forks = forks
        self.cluster = SimulatedCluster(seed, budget)
        self.rng = self.cluster.rng
        self.points = Faults()
        self.player = SimulationSteps(self.cluster, budget.without, self.points)
        self.cluster.others = self.player.run_others
        self.engines_max = self.theme.engines or self.rng.choice((1, 2, 2, 3))
        if budget.engines_max is not None:
            self.engines_max = min(self.engines_max, budget.engines_max)
        # What can be told of it: how often each kind of thing happened, the moves of its wild parts, where it was.
        self.happened: Counter[str] = self.cluster.happened
        self.steps = 0
        self.store_kind: str = self.cluster.store_kind

    # -- the history -------------------------------------------------------------------------------------------------

    def run(self) -> Simulation:
        with self._at_fault_points():
            self._start()
            self._run_with_faults()
            self._run_to_end()
            while self._continues():
                self._run_with_faults()
                self._run_to_end()
            self._deliver_late_reports()
            self._finish()
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
        """Asked after every move: whether all promises are kept."""
        self.cluster.check()

    def _start(self) -> None:
        """Some processes, and a run of one of them or of nobody; now and then others beside it."""
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
            if self._is_over:
                break
            self.steps += 1
            self.player.do(self.rng.choices(names, weights)[0])
            self.check()
            self.player.hear()

    def _choose_steps(self) -> tuple[list[str], list[int]]:
        """What may happen this time, and what the weather is."""
        rng, without = self.rng, self.budget.without
        sometimes = {name: weight for name, weight in SOMETIMES.items() if rng.random() < 0.4}
        sometimes.update(self.theme.steps)
        if rng.random() < PLAGUES:
            sometimes["lose_worker"] = 20
        allowed = {name: weight for name, weight in sometimes.items() if name not in without}
        kinds = [kind for kind in FAULTS if rng.random() < 0.5 and kind not in without]
        self.cluster.weather = [kind for kind in kinds if kind != "busy" or self.cluster.store_kind == "sqlite"]
        self.cluster.weather_share = rng.choice((0.0, 0.01, 0.03, 0.1))
        if self.theme.is_dense and "meanwhile" not in without:
            self.cluster.weather, self.cluster.weather_share = ["meanwhile"], DENSE
        chosen = {**ALWAYS, **allowed}
        return list(chosen), list(chosen.values())

    def _steps_now(self) -> int:
        count = self.rng.choice((5, 30, 80, 160))
        most = self.budget.steps_max
        return count if most is None else min(count, most - self.steps)

    @property
    def _is_over(self) -> bool:
        """Every run has ended, and what a worker was given while one was stopped has ended too."""
        contents = self.cluster.contents
        return not (contents.messages or contents.leases) and all(run.has_ended for run in contents.runs.values())

    # -- the tame part -----------------------------------------------------------------------------------------------

    def _run_to_end(self) -> None:
        """Everybody does their duty, and every run must end."""
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
                raise AssertionError(f"promise 10: nobody has anything to do, and runs are {self._statuses()}")
            self._pass_time(idle)

    def _end_faults(self) -> None:
        self.points.disarm()
        self.cluster.end_faults()
        # On every host: what has to run where it ran before waits for its host.
        for host in self.cluster.hosts:
            if not any(_serves_all(worker) for worker in self.cluster.workers if worker.host == host):
                self.cluster.start(SLOTS_ENOUGH, host=host)

    def _work(self) -> bool:
        """Everybody goes round once, and all that runs ends; whether anything came of it."""
        before = self.cluster.events
        for worker in list(self.cluster.workers):
            if worker in self.cluster.workers:
                self.cluster.act(worker)
                self.check()
        self.player.hear()
        return self.player.end_all_tasks() or self.cluster.events != before

    def _pass_time(self, idle: int) -> None:
        """To what is due next, or until a dead worker is known to be dead."""
        left = self.cluster.seconds_to_next_timer()
        self.cluster.advance(max(0.0, left) if idle % 2 and left is not None else LEASE_SECONDS + 1)

    def _statuses(self) -> str:
        return ", ".join(f"{run.run_id} {run.status}" for run in self.cluster.contents.runs.values())

    # -- and then ----------------------------------------------------------------------------------------------------

    def _continues(self) -> bool:
        """Whether somebody wants another round, or a fork, of what has ended."""
        if self.forks and self.rng.random() < self.theme.forks and self.player.do("fork"):
            self.check()
            return True
        state = self.state
        is_open = state.run.status != "completed" or bool(maps_of(state))
        if state.run.round >= ROUNDS_MAX or not is_open or self.rng.random() >= 0.5:
            return False
        self.cluster.operator.put(RUN_ID, self.player.another_round(RUN_ID))
        self.check()
        return True

    def _deliver_late_reports(self) -> None:
        """The runs are over; what was still on its way arrives, and changes nothing."""
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
        """The dead are found; and now and then everybody goes home."""
        if self.rng.random() < 0.3:
            for worker in self.cluster.workers[1:]:
                worker.is_leaving = True
        for _ in range(IDLE_MAX):
            contents = self.cluster.contents
            is_anybody_going = any(map(_is_leaving, self.cluster.workers))
            # Who came back just now may have taken up what is over, and will see that.
            is_let_go = not any(run.has_ended and run.holder for run in contents.runs.values())
            if not is_anybody_going and is_let_go and contents.workers.keys() <= self.cluster.live_workers:
                return
            self._work()
            self.cluster.advance(LEASE_SECONDS + 1)

    # -- telling -----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The run that was started first, folded from its log."""
        return self.cluster.checker.runs[RUN_ID].state

    @property
    def status(self) -> str:
        return self.state.run.status

    @property
    def log(self) -> list[Entry]:
        """Of the run that was started first."""
        return self.cluster.checker.runs[RUN_ID].log

    def logs(self) -> list[list[Entry]]:
        """Of every run, in the order of their ids."""
        return [checked.log for _, checked in sorted(self.cluster.checker.runs.items())]

    def log_bytes(self) -> bytes:
        """The logs as text, to compare histories by."""
        return b"".join(encode_log(log) for log in self.logs())

    def last_facts(self, count: int = 30) -> str:
        return format_entries(self.log[-count:])


def _serves_all(worker: SimulatedWorker) -> bool:
    return worker.root_run_id is None and worker.slots >= SLOTS_ENOUGH and not worker.is_leaving


def _is_leaving(worker: SimulatedWorker) -> bool:
    return worker.is_leaving or worker.root_run_id is not None
