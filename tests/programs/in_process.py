"""Programs and their steps in the process of a test: the real engine on a store in memory, and a clock that jumps.

A killed worker is a `Crash` at a fault point: what its engine and its executor know is gone, and another goes on.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from mulligan import StepError
from mulligan.core.effects.program_history import program_history
from mulligan.core.effects.tasks import Task
from mulligan.core.model.actions import PROGRAM, traits_of
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import ApprovalGiven, EventSent, Report, RunRequested, TaskEnded
from mulligan.core.model.workflow import encode, version
from mulligan.core.state.mailbox import awaited_name, is_open_wait
from mulligan.core.state.program_progress import NO_PROGRESS
from mulligan.core.state.state import Place, State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.turn import fold
from mulligan.engine.engine import Engine
from mulligan.language import check_inputs
from mulligan.language.expressions import Cel
from mulligan.ports import Lease, NewRun, WorkerRecord
from mulligan.programs import messages as m
from mulligan.programs.call_values import storable
from mulligan.programs.conversion import recorded_history, turn_end_of
from mulligan.programs.errors import Stopped
from mulligan.programs.inline_steps import run_inline
from mulligan.programs.machine import APPROVE, Machine
from mulligan.programs.process import SocketLink, decode_arguments
from mulligan.programs.running import run_function
from mulligan.testing.clock import JumpingClock
from mulligan.testing.fake_executor import FakeExecutor
from mulligan.testing.faults import Crash
from mulligan.testing.memory.memory_store import MemoryStore

# For whatever nobody answers: after as many jumps of twice the time, a month is over.
JUMPS_MAX = 30


class _Link(SocketLink):
    """The way to an engine in this process: the turn ends with the first thing that the program says."""

    def __init__(self, wall_time: float) -> None:
        self._wall_time = wall_time
        self.said: m.FromProgram | None = None

    def exchange(self, message: m.Idle) -> m.Deliver:
        self.said = message
        raise Stopped

    def wall_time(self) -> float:
        return self._wall_time

    def define(self, thing: Any) -> m.StepDefinition:
        from mulligan.programs.definitions import definition_of

        return definition_of(thing)

    def differs(self, difference: Any) -> None: ...

    def arm(self) -> None: ...

    def disarm(self) -> None: ...

    def replayed(self) -> None: ...


class _Executor(FakeExecutor):
    """Carries out each task when its end is collected."""

    def __init__(self, name: str, run: Run) -> None:
        super().__init__(name, run.clock, slots=4)
        self._run = run

    def _end(self, lease: Lease, now: Any) -> Report | None:
        task = lease.task
        if lease.token in self._interrupted or lease.token in self.stopped:
            return super()._end(lease, now)
        environment = {
            "MULLIGAN_STEP": task.step,
            "MULLIGAN_VISIT": str(task.visit),
            "MULLIGAN_ATTEMPT": str(task.env_attempt or task.attempt),
            "MULLIGAN_IDEMPOTENCY_KEY": task.idempotency_key,
        }
        os.environ.update(environment)
        try:
            return self._turn(task, now.timestamp()) if task.kind == PROGRAM else self._step(task)
        finally:
            for variable in environment:
                del os.environ[variable]

    def _turn(self, task: Task, at: float) -> Report:
        """Replay the program in a new process, up to what it says next."""
        state, turn = self._run.state, task.turn
        assert turn is not None
        found = program_history(state, (state.places[task.place].program or NO_PROGRESS).known)
        history = m.decode_history(m.encode(recorded_history(found))) if found.calls else None
        link = _Link(at)
        machine = Machine(link, turn=turn.turn, history=history, at=turn.begun, step=task.place, seen=turn.seen)
        function = _named(task).fn
        try:
            said: Any = run_function(machine, function, decode_arguments(function, task.params.get("args", {}), {}))
        except Stopped:
            said = link.said
        output = said.output if isinstance(said, m.Ended) else None
        return TaskEnded(self.clock.now(), task.place, task.attempt, output=output, turn=turn_end_of(said))

    def _step(self, task: Task) -> Report:
        function = _named(task)
        arguments = decode_arguments(getattr(function, "fn", function), task.params.get("args", {}), {})
        try:
            output = storable(run_inline(getattr(function, "fn", function), arguments), "the result")
        except StepError as error:
            failed = Outcome(exit_code=1, reported=(error.report(),))
            return TaskEnded(self.clock.now(), task.place, task.attempt, failed)
        return TaskEnded(self.clock.now(), task.place, task.attempt, output=output)


def _named(task: Task) -> Any:
    module, _, name = task.params["call"].partition(":")
    return getattr(importlib.import_module(module), name)


class Run:
    """A run of a program, and whoever answers what it waits for.

    `answers`: by the name of an event its value, and for `approve` whether it is approved. What has no answer gets
    none in time.
    """

    def __init__(self, program: Any, inputs: Mapping[str, Any], answers: Mapping[str, Any]) -> None:
        self.clock = JumpingClock()
        self.store = MemoryStore(clock=self.clock)
        self._answers = dict(answers)
        self._workers = 0
        workflow = program.__mulligan_workflow__().check()
        self._workflow, data = workflow, encode(workflow)
        request = RunRequested(self.clock.now(), 0, check_inputs(workflow, dict(inputs)), version(data), uid="run")
        (turn,) = self.store.create([NewRun(data, request.version, workflow.name, request)], "")
        self.run_id = turn.run_id

    @property
    def state(self) -> State:
        return fold(self._workflow, self.store.log(self.run_id))

    @property
    def is_ended(self) -> bool:
        return self.store.run(self.run_id).status in RUN_ENDED

    def drive(self) -> State:
        """Drive it to its end, with a new worker after each crash."""
        engine, jump = self._worker(), 1.0
        for _ in range(JUMPS_MAX):
            try:
                while not _is_quiet(engine):
                    pass
            except Crash:
                assert self.store.expire(engine.name, is_dead=True)
                engine = self._worker()
                continue
            if self.is_ended:
                return self.state
            if not self._answer():
                self.clock.advance(jump)
                jump *= 2
        raise AssertionError(f"the run does not end: {self.store.log(self.run_id)[-3:]}")

    def _worker(self) -> Engine:
        self._workers += 1
        name = f"w{self._workers}"
        self.store.register(WorkerRecord(name, "here", self._workers))
        engine = Engine(self.store, self.clock, Cel({}), name, _Executor(name, self))
        engine.take_up([self.run_id])
        return engine

    def _answer(self) -> bool:
        """Answer one thing that the run waits for, once."""
        now = self.clock.now()
        for place in self.state.places.values():
            if is_open_wait(place) and awaited_name(place) in self._answers:
                name = awaited_name(place)
                self.store.put(self.run_id, EventSent(now, name, self._answers.pop(name)))
                return True
            if _waits_for_person(place) and APPROVE in self._answers:
                self.store.put(self.run_id, ApprovalGiven(now, place.key, self._answers.pop(APPROVE), "ann", "because"))
                return True
        return False


def _waits_for_person(place: Place) -> bool:
    return traits_of(place.spec.action).asks_person and place.status == "running" and not place.phase


def _is_quiet(engine: Engine) -> bool:
    """Whether two rounds had nothing to do: what is due is only known after a look."""
    return not any(engine.tick(0.0) or not engine.is_settled for _ in range(2))
