"""What may happen in a simulated cluster: to workers, reports, time and clocks, and what people do at bad moments.

A step returns False if there was nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import Any

import msgspec

from mulligan.core.deciding.agents.triage_agent import is_decided
from mulligan.core.deciding.rounds.fork import plan_fork, worktree_origin
from mulligan.core.deciding.rounds.kept_approvals import refuse_changed_inputs
from mulligan.core.evolve.evolve_places import is_engine_action
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.actions import traits, traits_of
from mulligan.core.model.event_types import ChildRound, WorktreeOrigin
from mulligan.core.model.kept_history import pack_history
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import END, decode
from mulligan.core.state.mailbox import awaited_name, is_open_wait
from mulligan.core.state.state import Place, State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.turn import fold
from mulligan.errors import Refused
from mulligan.history.moments import is_at_rest
from mulligan.ports import FAULT_POINTS, Lease
from mulligan.ports.fault_points import SERVER_FAULT_POINTS
from mulligan.testing.clock import START
from mulligan.testing.faults import Faults
from proof.invariants.run_invariants import promise_17_what_is_accepted_is_there
from proof.simulator.cluster.server_cluster import ClusterWithServers
from proof.simulator.cluster.simulated_cluster import SimulatedCluster
from proof.simulator.cluster.simulated_worker import SimulatedWorker
from proof.simulator.corrections import correction
from proof.simulator.programs.correcting import edited_program
from proof.simulator.programs.drawing import EVENTS
from proof.simulator.programs.turns import ProgramProcesses
from proof.simulator.workflows import BREAKERS

PROCESSES_MAX = 4
RUNS_MAX = 4
# Enough for anything that a random workflow asks for.
SLOTS_ENOUGH = 4

# What may happen in the phase with faults, and how often; a history has only some of the optional ones.
ALWAYS = {"step": 45, "end_task": 22, "pass_time": 8, "decide": 4, "send": 2}
SOMETIMES = {
    "lose_worker": 3,
    "freeze": 3,
    "interrupt": 2,
    "newcomer": 3,
    "repeat_report": 6,
    "forge_report": 3,
    "fire_early": 4,
    "fire_again": 3,
    "cancel": 1,
    "cancel_now": 1,
    "pause": 2,
    "resume": 4,
    "retry": 2,
    "fork": 1,
    "ask_nonsense": 2,
    "crash": 3,
    "wrong_clock": 3,
    "reset_breakers": 1,
}
# The share of rounds with a corrected definition.
CORRECTED_SHARE = 0.4
# How many of the rounds keep completed steps although a step that they depend on runs again.
KEPT_SHARE = 0.2
# The share of rounds that say something about the child runs, of runs that have one that did not complete.
OF_CHILDREN_SHARE = 0.5
# How many retries run steps again whose undo has failed.
FORCED_SHARE = 0.5
# The share of forks that continue the run from one of its events.
CONTINUED_SHARE = 0.5
# The share of forks that may have other inputs and do.
OTHER_INPUTS_SHARE = 0.4
# What other processes do while one waits for the store.
_MEANWHILE = ("step", "step", "step", "end_task", "cancel", "pause", "resume", "retry", "decide", "fire_early")


# By how much a wall clock may be off: a little, an hour or two, nothing again.
_CLOCK_STEPS = (-7200.0, -50.0, -1.0, 0.0, 0.0, 2.0, 600.0, 3600.0)
_BEFORE_ALL_CLOCKS = START + timedelta(seconds=min(_CLOCK_STEPS))


class SimulationSteps:
    """All steps that chance may choose from."""

    def __init__(self, cluster: SimulatedCluster, without: frozenset[str], points: Faults) -> None:
        self.cluster = cluster
        self.rng = cluster.rng
        self.points = points
        self.failing_share = self.rng.choice((0.1, 0.3, 0.6))
        self.patience = self.rng.randint(0, 2)
        self._meanwhile = [name for name in _MEANWHILE if name not in without]
        if self._servers is not None:
            self._meanwhile += [*["serve"] * 5, "hold_schedule"]
        # What runs were asked, by the message.
        self._asked: dict[int, tuple[int, r.Report]] = {}
        self._sent_count = 0
        self._timers_seen: dict[tuple[int, Any, str, int], None] = {}
        self._programs = ProgramProcesses()

    def do(self, name: str) -> bool:
        move: Callable[[], object] = getattr(self, name)
        if move() is False:
            return False
        self.cluster.happened[name] += 1
        return True

    def run_others(self) -> None:
        self.do(self.rng.choice(self._meanwhile))

    # -- workers -----------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Let a process run its loop, once or several times."""
        runnable = self.cluster.runnable
        if not runnable:
            return self.newcomer()
        worker = self.rng.choice(runnable)
        for _ in range(self.rng.choice((1, 1, 1, 2, 5))):
            if worker in self.cluster.runnable:
                self.cluster.act(worker)
        return True

    def newcomer(self) -> bool:
        if len(self.cluster.workers) >= PROCESSES_MAX:
            return False
        roots = [
            run_id for run_id in self.cluster.roots() if self.cluster.contents.runs[run_id].status not in RUN_ENDED
        ]
        root = self.rng.choice(roots) if roots and self.rng.random() < 0.4 else None
        self.cluster.start(self.rng.choice(self.slots), root)
        return True

    @property
    def slots(self) -> tuple[int, ...]:
        """Return how many slots a worker may have. On one host a task that does not fit fails; shared stores wait."""
        return 1, 2, SLOTS_ENOUGH, SLOTS_ENOUGH

    def lose_worker(self) -> bool:
        """Kill -9, between two rounds of a loop."""
        if self.cluster.idle:
            self.cluster.drop(self.rng.choice(self.cluster.idle))
            return True
        return False

    def freeze(self) -> bool:
        if self.cluster.runnable:
            seconds = self.rng.choice((2, 15, 25, 40, 120))
            self.rng.choice(self.cluster.runnable).frozen_until = self.cluster.clock.monotonic() + seconds
            return True
        return False

    def outage(self) -> bool:
        """Cut all workers off from the store for longer than a lease, as a broken network does."""
        if self.cluster.database.is_shared:
            self.cluster.begin_outage(self.rng.choice((35, 50, 200)))
            return True
        return False

    def interrupt(self) -> bool:
        """Ctrl-C: end what runs, and leave."""
        if self.cluster.runnable:
            self.rng.choice(self.cluster.runnable).is_leaving = True
            return True
        return False

    def crash(self) -> None:
        self.points.arm(self.rng.choice(list(FAULT_POINTS)), self.rng.randint(1, 3))

    def reset_breakers(self) -> bool:
        """Close breakers, as an operator does."""
        closed = [name for name in BREAKERS if self.cluster.operator.reset_breaker(name)]
        return bool(closed)

    # -- servers -----------------------------------------------------------------------------------------------------

    def serve(self) -> bool:
        """Let a server look once; where there is none, start one."""
        servers = self._servers
        if servers is None:
            return False
        if not servers.servers:
            servers.start_server()
        if not servers.runnable_servers:
            return False
        servers.act_server(self.rng.choice(servers.runnable_servers))
        return True

    def lose_server(self) -> bool:
        if self._servers is None or not self._servers.runnable_servers:
            return False
        self._servers.lose_server(self.rng.choice(self._servers.runnable_servers))
        if self.rng.random() < 0.5:
            self._servers.start_server()
        return True

    def freeze_server(self) -> bool:
        if self._servers is None or not self._servers.runnable_servers:
            return False
        seconds = self.rng.choice((15, 60, 200))
        self.rng.choice(self._servers.runnable_servers).frozen_until = self.cluster.clock.monotonic() + seconds
        return True

    def crash_server(self) -> None:
        self.points.arm(self.rng.choice(list(SERVER_FAULT_POINTS)), self.rng.randint(1, 2))

    def hold_schedule(self) -> bool:
        if self._servers is None:
            return False
        self._servers.pause_or_resume()
        return True

    @property
    def _servers(self) -> ClusterWithServers | None:
        return self.cluster if isinstance(self.cluster, ClusterWithServers) else None

    # -- tasks -------------------------------------------------------------------------------------------------------

    def end_task(self) -> bool:
        running = [(one, lease) for one in self.cluster.workers if one.executor for lease in one.executor.unfinished]
        if not running:
            return False
        worker, lease = self.rng.choice(running)
        assert worker.executor is not None
        report = self._ended(worker, lease)
        if not isinstance(report, r.CallsMade):
            worker.executor.end(lease, report)
            return True
        worker.executor.say(lease, report)
        if self.rng.random() < 0.05:
            # Its process dies before it has the answer.
            worker.executor.end(lease, r.TaskEnded(report.at, report.place, report.attempt, Outcome(None, signal=9)))
        return True

    def end_all_tasks(self) -> bool:
        count = 0
        while self.end_task():
            count += 1
        return count > 0

    def _ended(self, worker: SimulatedWorker, lease: Lease) -> r.TaskEnded | r.CallsMade:
        place, attempt, at = lease.task.place, lease.task.attempt, worker.clock.now()
        assert worker.executor is not None
        is_stopped = worker.executor.stopped.get(lease.token) is not None
        # One that waits for an answer can say nothing before it is killed.
        says_nothing = lease.token in worker.executor.mid_turn
        if is_stopped and (says_nothing or self.rng.random() < 0.8):
            return r.TaskEnded(at, place, attempt, Outcome(None, signal=15, is_stopped=True))
        if lease.task.turn is not None:
            # Also of a program that was to end, and had just come to the end of its turn.
            return self._turn_ended(worker, lease)
        is_merged = self.cluster.worktrees.is_merged(lease.task.run_id)
        if traits(lease.task.kind, {}).opens_worktrees and (is_merged or self.rng.random() < 0.9):
            return r.TaskEnded(at, place, attempt, output=self.cluster.worktrees.carry_out(lease.task))
        if not traits(lease.task.kind, {}).opens_worktrees and self.rng.random() >= self.failing_share:
            warned = ({"severity": "warning", "code": "SLOW"},) if self.rng.random() < 0.05 else ()
            spent = {"tokens": 10, "cost": "0.1"} if traits(lease.task.kind, {}).is_agent else {}
            # Without asking for a random number, so that earlier seeds give the same histories.
            data = {"last": place} if attempt % 2 == 0 else {}
            outcome, output = Outcome(reported=warned), self._output(place)
            if output == "text" and at.second % 4 == 1:
                outcome, output = Outcome(reported=warned, output_warning="too much text", output_bytes=2**27), None
            return r.TaskEnded(at, place, attempt, outcome=outcome, output=output, usage=spent, data=data)
        usage: dict[str, Any] = {"peak_memory": self.rng.choice((2**20, 2**21))}
        return r.TaskEnded(at, place, attempt, self.rng.choice(_OUTCOMES), usage=usage)

    def _turn_ended(self, worker: SimulatedWorker, lease: Lease) -> r.TaskEnded | r.CallsMade:
        """A program has carried out a turn, or a part of it, in a process that has replayed what came before."""
        task, now = lease.task, worker.clock.now()
        self.cluster.checker.check_new()
        state = self._state(task.run_id)
        if self.rng.random() < 0.03:
            return r.TaskEnded(now, task.place, task.attempt, Outcome(None, signal=9))
        assert worker.executor is not None
        answer = worker.executor.answers.pop(lease.token, None)
        turn, output = self._programs.play(worker.name, task, state, now.timestamp(), answer)
        if turn.goes_on and self.rng.random() < 0.8:
            return r.CallsMade(now, task.place, task.attempt, turn)
        return r.TaskEnded(now, task.place, task.attempt, output=output, turn=turn)

    def _output(self, place: str) -> Any:
        if ".model@" in place:
            return self._answer(place)
        if ".lister" in place:
            return self.rng.choice(([1, 2, 3], [], ["a", "b"], "no list"))
        if ".triager@" in place:
            return {"json": self.rng.choice(_TRIAGE_ANSWERS)}
        statuses = ("completed", "failed", "done", 7) if place == END else ("completed", "failed")
        said = {"status": self.rng.choice(statuses), "output": "decided", "reason": "so"}
        # A handler that decides has to say so.
        others = (said, said, said, said) if ".on_failure@" in place else (None, 7, "text", [1, 2])
        return self.rng.choice((*others, said, said))

    def _answer(self, place: str) -> Any:
        """Return what a model says: an answer, or the tools that it wants, some of which do not exist."""
        if self.rng.random() < 0.3:
            return {"content": "done", "decision": None, "tokens": None}
        names = ("look", "look", "note", "nothing")
        calls = [
            {"id": f"{place}/{index}", "name": self.rng.choice(names), "arguments": {"word": "x"}}
            for index in range(self.rng.randint(1, 3))
        ]
        return {"content": "", "tool_calls": calls}

    # -- unexpected reports ------------------------------------------------------------------------------------------

    def repeat_report(self) -> bool:
        """Repeat the report of an attempt, perhaps with another result."""
        run_id = self._some_run()
        log = self.cluster.checker.runs[run_id].log
        known = [entry.fact for entry in log if isinstance(entry.fact, (*_RESULTS, e.AttemptStarted))]
        if not known:
            return False
        fact, now = self.rng.choice(known), self.cluster.clock.now()
        kinds: list[Callable[[], r.Report]] = [
            lambda: r.TaskStarted(now, fact.place, fact.attempt, worker="h1.1", host="h1")
        ]
        if isinstance(fact, _RESULTS):
            kinds += [
                lambda: r.TaskEnded(now, fact.place, fact.attempt, self.rng.choice(_OUTCOMES)),
                lambda: r.TaskEnded(now, fact.place, fact.attempt),
                lambda: r.TaskInterrupted(now, fact.place, fact.attempt),
                lambda: r.LeaseExpired(now, fact.place, fact.attempt, "h1.1"),
                lambda: r.ChildEnded(now, fact.place, fact.attempt, child_run_id=2, status="completed"),
            ]
        self._put(run_id, self.rng.choice(kinds)())
        return True

    def forge_report(self) -> None:
        run_id = self._some_run()
        place = self.rng.choice(list(self._state(run_id).places) or ["nowhere"])
        attempt, now = self.rng.choice((0, 99)), self.cluster.clock.now()
        kinds: list[Callable[[], r.Report]] = [
            lambda: r.TaskStarted(now, place, attempt),
            lambda: r.TaskEnded(now, place, attempt),
            lambda: r.LeaseExpired(now, "nowhere", 1),
            lambda: r.ChildEnded(now, place, attempt, child_run_id=7, status="failed"),
        ]
        self._put(run_id, self.rng.choice(kinds)())

    # -- time --------------------------------------------------------------------------------------------------------

    def pass_time(self) -> None:
        self._timers_seen.update(dict.fromkeys(self.cluster.contents.timers))
        self.cluster.advance(self.rng.choice((0, 0.5, 3, 12, 45, 300)))

    def wrong_clock(self) -> None:
        self.cluster.set_clock(self.rng.choice(self.cluster.hosts), self.rng.choice(_CLOCK_STEPS))

    def fire_early(self) -> bool:
        return self._fire(list(self.cluster.contents.timers))

    def fire_again(self) -> bool:
        return self._fire([timer for timer in self._timers_seen if timer not in self.cluster.contents.timers])

    def _fire(self, timers: list[tuple[int, Any, str, int]]) -> bool:
        if not timers:
            return False
        run_id, kind, place, number = self.rng.choice(timers)
        # With the slowest clock: a faster one would make the timer due.
        self._put(run_id, r.TimerFired(_BEFORE_ALL_CLOCKS, kind, place, number))
        return True

    # -- people ------------------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        self._ask(self._some_run(), r.CancelRequested(self.cluster.clock.now(), "someone", "enough"))

    def cancel_now(self) -> None:
        self._ask(self._some_run(), r.CancelRequested(self.cluster.clock.now(), "someone", "enough", now=True))

    def pause(self) -> None:
        self._ask(self._some_root(), r.PauseRequested(self.cluster.clock.now(), "someone"))

    def resume(self) -> bool:
        """Resume a paused top-level run: others resume with their callers."""
        paused = [run_id for run_id in self.cluster.roots() if self._state(run_id).run.status == "paused"]
        if not paused:
            return False
        steps = self.rng.choice((0, 0, 1, 2))
        self._ask(self.rng.choice(paused), r.ResumeRequested(self.cluster.clock.now(), "someone", steps=steps))
        return True

    def pause_step(self) -> bool:
        """Pause a step of any run; one that has ended refuses."""
        run_id = self._some_run()
        step = self._some_step(self._state(run_id))
        if step:
            self._ask(run_id, r.PauseRequested(self.cluster.clock.now(), "someone", step=step))
        return bool(step)

    def resume_step(self) -> bool:
        """Resume a step that was paused."""
        runs = [(run_id, self._state(run_id)) for run_id in sorted(self.cluster.contents.runs)]
        held = [(run_id, step) for run_id, state in runs for step in state.run.paused_steps]
        if not held:
            return False
        run_id, step = self.rng.choice(held)
        self._ask(run_id, r.ResumeRequested(self.cluster.clock.now(), "someone", step=step))
        return True

    def help(self) -> bool:
        """Do what only a person can do; processes that have asked wait for the answer."""
        return not self._asked and (self.resume() or self.resume_step() or self.decide())

    def retry(self) -> None:
        """Retry a run that is over; any other refuses."""
        run_id = self._some_root()
        if not self.is_refused_round(run_id):
            self._ask(run_id, self.another_round(run_id))

    def is_refused_round(self, run_id: int) -> bool:
        """Whether the service refuses to retry a run: its worktree was merged and is gone."""
        folder = self._state(run_id).run.workspace
        return bool(folder) and not self.cluster.worktrees.exists(folder)

    def another_round(self, run_id: int) -> r.RetryRequested:
        """Retry what was not done; sometimes only items of a map, which is all that a completed run allows."""
        now, state = self.cluster.clock.now(), self._state(run_id)
        maps, adjust = maps_of(state), self.rng.random() < 0.3
        if not maps or (state.run.status != "completed" and self.rng.random() < 0.6):
            report = r.RetryRequested(now, "someone", "again", self._some_step(state), adjust=adjust)
            report = self._keeping(state, self._corrected(state, self._forced(state, report)))
            return self._of_children(state, report)
        self.cluster.happened["items"] += 1
        place = self.rng.choice(maps)
        total = len(place.items.values) if place.items else 0
        items = tuple(self.rng.sample(range(total), self.rng.randint(1, total)))
        report = r.RetryRequested(now, "someone", "again", from_step=place.key, items=items, adjust=adjust)
        return self._keeping(state, report)

    def _keeping(self, state: State, report: r.RetryRequested) -> r.RetryRequested:
        """Sometimes keep completed steps behind those that run. Uses its own random numbers, as `_corrected` does."""
        dice = Random(f"keep {state.run.run_id}:{state.run.seq}:{report.from_step}")
        if dice.random() >= KEPT_SHARE:
            return report
        self.cluster.happened["kept"] += 1
        return msgspec.structs.replace(report, keep_completed=True)

    def _forced(self, state: State, report: r.RetryRequested) -> r.RetryRequested:
        """Sometimes run again what could not be undone. Uses its own random numbers, as `_corrected` does."""
        is_forced = Random(f"force:{state.run.run_id}:{state.run.seq}").random() < FORCED_SHARE
        return msgspec.structs.replace(report, force=is_forced)

    def _corrected(self, state: State, report: r.RetryRequested) -> r.RetryRequested:
        """Sometimes add a corrected definition. Uses its own random numbers, so that other histories stay the same."""
        dice = Random(f"{state.run.run_id}:{state.run.seq}:{report.from_step}")
        is_fixed = not state.places or state.workflow.workspace is not None
        if is_fixed or dice.random() >= CORRECTED_SHARE:
            return report
        if state.graph.program:
            self.cluster.happened["corrected program"] += 1
            revised = edited_program(dice, state, report.from_step, is_forced=report.force)
            return msgspec.structs.replace(report, revised=revised)
        self.cluster.happened["corrected"] += 1
        revised = correction(dice, state.workflow, state.run.inputs)
        return msgspec.structs.replace(report, revised=revised)

    def _of_children(self, state: State, report: r.RetryRequested) -> r.RetryRequested:
        """Sometimes start child runs anew, or retry one of them. Uses its own random numbers, as `_corrected` does."""
        dice = Random(f"child of {state.run.run_id}:{state.run.seq}:{report.from_step}")
        called = [place for place in state.places.values() if place.last_child is not None]
        if not called or dice.random() >= OF_CHILDREN_SHARE:
            return report
        if dice.random() < 0.3:
            self.cluster.happened["children from start"] += 1
            return msgspec.structs.replace(report, from_start=True)
        self.cluster.happened["retry of a child"] += 1
        return msgspec.structs.replace(report, child=self._round_of(dice, dice.choice(called)))

    def _round_of(self, dice: Random, place: Place) -> ChildRound:
        """What the next round of a child run is asked for; perhaps one of a child run that it has called itself."""
        last = place.last_child
        assert last is not None
        state = self._state(last.run_id)
        below = [one for one in state.places.values() if one.last_child is not None]
        return ChildRound(
            f"{place.key}.0" if place.role == "item" else place.key,
            last.run_id,
            last.round + 1,
            from_start=dice.random() < 0.2,
            from_step=dice.choice(["", "", *state.graph.nodes]),
            adjust=dice.random() < 0.3,
            child=self._round_of(dice, dice.choice(below)) if below and dice.random() < 0.7 else None,
        )

    def fork(self) -> bool:
        """Fork a run that is at rest."""
        resting = [
            run_id for run_id in self.cluster.roots() if self._state(run_id).run.status in (*RUN_ENDED, "paused")
        ]
        if not resting or len(self.cluster.contents.runs) >= RUNS_MAX:
            return False
        run_id = self.rng.choice(resting)
        if self._fork_at_an_event(run_id):
            return True
        old = self._state(run_id)
        if old.graph.program:
            return False
        from_step, inputs = self.rng.choice([step.name for step in old.workflow.steps]), self._inputs_of_fork(old)
        planned = plan_fork(old, old.graph, from_step, inputs=inputs)
        origin = self._pinned(old, planned.worktree)
        if (origin is None) is (planned.worktree is None):
            self.cluster.create(old.workflow, forked_from=run_id, kept=planned.kept, worktree=origin, inputs=inputs)
        return True

    def _inputs_of_fork(self, old: State) -> dict[str, Any]:
        """Sometimes other inputs than those of the run. Uses its own random numbers, as `_corrected` does."""
        if Random(f"inputs of {old.run.run_id}:{old.run.seq}").random() >= OTHER_INPUTS_SHARE:
            return old.run.inputs
        self.cluster.happened["forked with other inputs"] += 1
        return {**old.run.inputs, "target": "production"}

    def _pinned(self, old: State, origin: WorktreeOrigin | None) -> WorktreeOrigin | None:
        """The worktree that a fork copies; None where the service refuses it: it is gone, or commands work in it."""
        is_busy = any(place.status == "running" and not is_engine_action(place.spec) for place in old.places.values())
        if origin is None or (is_busy and old.run.status not in RUN_ENDED):
            return None
        self.cluster.happened["copied worktree"] += 1
        return self.cluster.worktrees.pin(origin)

    def _fork_at_an_event(self, run_id: int) -> bool:
        """Sometimes continue the run from one of its events. Uses its own random numbers, as `_corrected` does."""
        log = self.cluster.checker.runs[run_id].log
        dice = Random(f"fork of {run_id}:{len(log)}")
        points = [one.seq for one, two in pairwise(log) if is_at_rest(one, two)]
        if not points or dice.random() >= CONTINUED_SHARE:
            return False
        seq, now = dice.choice(points), self.cluster.clock.now()
        first = decode(self.cluster.operator.load(run_id).workflow)
        state = fold(first, log[:seq])
        if state.run.status in RUN_ENDED or state.run.stop is not None:
            # The service refuses it there: what is parked is cancelled by the fork, and nothing can be decided.
            return False
        parked = [place.key for place in state.steps() if place.status == "pending_failed" and not is_decided(place)]
        copied = worktree_origin(state)
        origin = self._pinned(self._state(run_id), copied)
        if copied is not None and origin is None:
            return False
        decision = None
        if parked:
            decision = r.Classified(now, dice.choice(parked), dice.choice(("retry", "fail")), "someone", "otherwise")
        has_inputs = dice.random() < 0.3
        inputs = self._inputs_of_fork(state) if has_inputs else state.run.inputs
        try:
            refuse_changed_inputs(state, inputs)
        except Refused:
            return False
        self.cluster.happened["forked at an event"] += 1
        self.cluster.create(
            first,
            forked_from=run_id,
            forked_at=seq,
            history=pack_history(log[:seq]),
            has_inputs=has_inputs,
            inputs=inputs,
            decision=decision,
            worktree=origin,
        )
        return True

    def start_run(self) -> bool:
        """Start another run of a workflow that was started before; some of them run again only what has changed."""
        if len(self.cluster.contents.runs) >= RUNS_MAX:
            return False
        workflow = self._state(self._some_root()).workflow
        forced = self.rng.choice(((), (), (workflow.steps[0].name,)))
        self.cluster.create(workflow, changed_only=self.rng.random() < 0.5, forced=forced)
        return True

    def ask_nonsense(self) -> None:
        """Use verbs that may make no sense now: they are refused, and change nothing."""
        run_id, now = self._some_run(), self.cluster.clock.now()
        state = self._state(run_id)
        step = self._some_step(state) or "nothing"
        verbs: list[Callable[[], r.Report]] = [
            lambda: r.Classified(now, step, "retry", by="someone", reason="because"),
            lambda: r.Classified(now, "nothing", "fail", by="someone", reason="because"),
            lambda: r.ApprovalGiven(now, step, True, by="someone", reason=""),
            lambda: r.RunRequested(now, run_id),
        ]
        if run_id in self.cluster.roots():
            # A child run continues with its caller.
            verbs.append(lambda: r.ResumeRequested(now))
        if state.run.status in RUN_ENDED:
            verbs += [lambda: r.CancelRequested(now), lambda: r.PauseRequested(now)]
        self._ask(run_id, self.rng.choice(verbs)())

    def decide(self) -> bool:
        """Decide something that waits for a person, or send the event that something waits for."""
        waiting = [
            (run_id, place)
            for run_id, watched in self.cluster.checker.runs.items()
            for place in watched.state.places.values()
            if _waits_for_outside(place)
        ]
        if not waiting:
            return False
        run_id, place = self.rng.choice(waiting)
        if place.status == "pending_failed":
            self._ask(run_id, self._classification(place))
        elif is_open_wait(place):
            self._send(run_id, awaited_name(place), self.rng.randint(1, 3))
        else:
            is_approved = self.rng.random() < 0.7
            report = r.ApprovalGiven(
                self.cluster.clock.now(), place.key, is_approved, by="someone", reason="looked at it"
            )
            self._ask(run_id, report)
        return True

    def send(self) -> None:
        """Send an event: early or late, one that nothing waits for or can use, twice, or to a run that has ended."""
        value, key = self.rng.choice((1, 2, "a text", None)), self.rng.choice(("", "", "k1", "k2"))
        name = self.rng.choice((*EVENTS, "other"))
        self._send(self._some_run(), name, value, key)

    def _send(self, run_id: int, name: str, value: Any, key: str = "") -> None:
        """Each in a name of its own, by which it is found in the log."""
        self._sent_count += 1
        self._ask(run_id, r.EventSent(self.cluster.clock.now(), name, value, f"sender {self._sent_count}", key))

    def _classification(self, place: Place) -> r.Classified:
        verdict: Any = "retry" if self.patience > 0 and self.rng.random() < 0.5 else "fail"
        self.patience -= verdict == "retry"
        memory = 2**22 if self.rng.random() < 0.3 else None
        return r.Classified(
            self.cluster.clock.now(), place.key, verdict, by="someone", reason="seen before", memory=memory
        )

    # -- messages to runs --------------------------------------------------------------------------------------------

    def _put(self, run_id: int, report: r.Report) -> None:
        self.cluster.operator.put(run_id, report)

    def _ask(self, run_id: int, report: r.Report) -> None:
        """Send a message to a run. If nothing drives the run, the sender may take its turn, and does nothing else."""
        message_id = self.cluster.operator.put(run_id, report, is_asking=True)
        # A child run may have been created since the contents were read.
        seen = self.cluster.contents.runs.get(run_id)
        is_left = seen is not None and not seen.holder and len(self.cluster.workers) < PROCESSES_MAX
        if is_left and self.rng.random() < 0.5:
            self.cluster.happened["visit"] += 1
            self.cluster.start(0, run_id, message_id)
        else:
            self._asked[message_id] = run_id, report

    def hear(self) -> None:
        """Fetch the answers that have arrived."""
        for message_id, (run_id, report) in list(self._asked.items()):
            answer = self.cluster.operator.answer(message_id)
            if answer is None:
                continue
            self.cluster.note_answer(message_id)
            del self._asked[message_id]
            if isinstance(report, r.EventSent):
                log = self.cluster.operator.log(run_id)
                promise_17_what_is_accepted_is_there(log, report, is_accepted=not answer.error)

    def _some_run(self) -> int:
        return self.rng.choice(list(self.cluster.checker.runs))

    def _some_root(self) -> int:
        return self.rng.choice(list(self.cluster.roots()))

    def _state(self, run_id: int) -> State:
        return self.cluster.checker.runs[run_id].state

    def _some_step(self, state: State) -> str:
        steps: tuple[str, ...] = ("", *(state.graph.nodes if state.places else ()))
        return self.rng.choice(steps)


def maps_of(state: State) -> list[Place]:
    """Return the maps of a run that have items; none if it has not begun."""
    steps = state.steps() if state.places else ()
    return [place for place in steps if place.items is not None and place.items.values]


def _waits_for_outside(place: Place) -> bool:
    if place.status == "pending_failed" or is_open_wait(place):
        return True
    is_approval = traits_of(place.spec.action).asks_person
    return is_approval and place.status == "running" and not place.phase


_RESULTS = (e.AttemptSucceeded, e.AttemptFailed)

_TRIAGE_ANSWERS: tuple[Any, ...] = (
    {"verdict": "retry", "confidence": 0.9, "reason": "seen before"},
    {"verdict": "retry", "confidence": 1, "reason": "more memory", "memory": 2**22},
    {"verdict": "retry", "confidence": 1, "reason": "far more memory", "memory": 2**40},
    {"verdict": "fail", "confidence": 0.9, "reason": "hopeless"},
    {"verdict": "fail", "confidence": 0.3, "reason": "perhaps"},
    {"verdict": "retry everything", "confidence": 2},
    None,
)

_OUTCOMES = (
    Outcome(1, stderr_tail="the tail of it"),
    Outcome(7),
    Outcome(None, signal=9),
    Outcome(None, is_timed_out=True),
    Outcome(None, signal=9, is_out_of_memory=True),
    Outcome(1, reported=({"code": "CUSTOM", "message": "no luck"},)),
    Outcome(0, reported=({"code": "WORKER_LOST", "severity": "error"}, "text")),
    Outcome(0, reported=({"code": "BREACH", "severity": "critical"},)),
    Outcome(0, code="HTTP_4XX", message="404"),
    Outcome(0, code="HTTP_429", message="slow down", details={"retry_after": 4}),
    Outcome(0, missing_outputs=("mesh",)),
    Outcome(0, output_error="not JSON"),
)
