"""Questions in a home of this process: the real workflow, core, engine and store. The functions of the steps are called
here, one after the other, and time jumps. A function of the test may stand for that of a step.

What is not real: the worker with its processes. `crash` is what `kill -9` leaves: a store, and a worker that is gone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from mulligan import StepError
from mulligan.core.effects.tasks import Task
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.artifacts import make_reference
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import encode, version
from mulligan.engine.engine import Engine
from mulligan.language import check_inputs, load
from mulligan.language.expressions import Cel
from mulligan.ports import Lease, NewRun, Store, WorkerRecord
from mulligan.store import open_store
from mulligan.testing.clock import JumpingClock
from mulligan.testing.fake_executor import FakeExecutor
from mulligan.testing.faults import Crash
from mulligan.testing.memory.memory_store import MemoryStore
from mulligan_nl2sql import steps
from mulligan_nl2sql.execution import queries
from mulligan_nl2sql.policed_databases import find_database
from mulligan_nl2sql.workflows import ASK

from ..shop import schema_of

Function = Callable[..., Any]
GOOD = "select count(*) as n from customers"
ROWS = b'{"n":30}\n'
SHOP = {"name": "shop", "url": "sqlite:///shop.db"}
INPUTS = {"question": "how many?", "databases": [SHOP], "planner": "openai", "today": "2026-01-01"}
ENDED = ("completed", "failed", "cancelled")


# What a function returns that never ends: only who stops it ends it.
HANGS = object()


class Kept(msgspec.Struct):
    """An output whose `file` is kept with the run."""

    output: dict[str, Any]
    rows: bytes


def _index(**arguments: Any) -> dict[str, Any]:
    schema = msgspec.to_builtins(schema_of("sqlite"))
    return {"database": arguments["database"], "url": arguments["url"], "schema": schema}


def _decompose(**arguments: Any) -> dict[str, Any]:
    """Every database gets the whole question."""
    read = [one["database"] for one in arguments["index"]["results"] if one is not None]
    return {"planner": "p", "parts": [{"database": name, "question": arguments["question"]} for name in read]}


def _cost(**_: Any) -> float:
    return 1.0


def _rows(**arguments: Any) -> Kept:
    output = {"columns": ["n"], "rows": 1, "bytes": len(ROWS), "cut": "", "seconds": 0.1, "cost": 1.0}
    return Kept({**output, "sql": arguments["sql"], "tables": ["main.customers"]}, ROWS)


def execute_here(**arguments: Any) -> Kept:
    """What `steps.execute` does, in a process of its own; the rows are kept by the executor below."""
    found, rules = find_database(arguments["url"], arguments["policy"], arguments["database"])
    schema = steps._schema(arguments["schema"], arguments["index"], arguments["database"])
    with tempfile.TemporaryDirectory() as folder:
        done = queries.execute(found, arguments["sql"], schema, rules, file=Path(folder) / "rows.jsonl")
        return Kept(msgspec.to_builtins(done), Path(done.path).read_bytes())


class Planner:
    """Writes these statements one after the other, the last one again and again with another limit."""

    def __init__(self, *statements: str) -> None:
        self._statements = statements or (GOOD,)
        self.calls = 0
        # What it was told of earlier statements.
        self.failed: list[Any] = []

    def __call__(self, **arguments: Any) -> dict[str, Any]:
        self.failed = arguments.get("failed") or []
        at = min(len(self.failed), len(self._statements) - 1)
        self.calls += 1
        again = len(self.failed) - at
        sql = f"{self._statements[at]} limit {again}" if again else self._statements[at]
        return {"sql": sql, "planner": "p", "model": "m", "failed": self.failed}


# Those that would start a process, or ask a model.
STAND_INS: dict[str, Function] = {
    "index": _index,
    "decompose_with_model": _decompose,
    "plan": Planner(),
    "explain": _cost,
    "execute": _rows,
}
_load = cache(load)


class SimulatedHome:
    def __init__(self, folder: Path | None = None) -> None:
        self.clock = JumpingClock(datetime.now(UTC))
        if folder is not None:
            folder.mkdir(mode=0o700, exist_ok=True)
        self.store: Store = (
            MemoryStore(clock=self.clock) if folder is None else open_store(folder / "mulligan.db", clock=self.clock)
        )
        self._numbers = count(1)

    def ask(
        self,
        workflow: Path = ASK,
        functions: Mapping[str, Function] | None = None,
        *,
        real: tuple[str, ...] = (),
        **inputs: Any,
    ) -> int:
        """Ask a question, and wait for its end. `real` are steps whose own functions are called."""
        given = {**{name: one for name, one in STAND_INS.items() if name not in real}, **(functions or {})}
        engine = self._engine(given)
        run = self._begin(workflow, inputs, engine)
        self._finish(run, engine, given)
        return run

    def crashed(self, run: int) -> None:
        """Called when the worker has died, before another one takes the question up."""

    def facts(self, run: int, *kinds: type[e.Fact]) -> list[Any]:
        """What happened in the run of a question and in those of its scans."""
        facts = (entry.fact for one in self._runs(run) for entry in self.store.log(one))
        return [fact for fact in facts if not kinds or isinstance(fact, kinds)]

    def status(self, run: int) -> str:
        return self.store.run(run).status

    def codes(self, run: int, step: str) -> list[str]:
        """The codes with which the attempts at a step failed."""
        failed = self.facts(run, e.AttemptFailed)
        return [fact.failure.code for fact in failed if fact.place.partition("[")[0] == step]

    def _runs(self, run: int) -> list[int]:
        return [run, *(child.run_id for child in self.store.children(run))]

    def _begin(self, workflow: Path, inputs: Mapping[str, Any], engine: Engine) -> int:
        definition = _load(workflow)
        data = encode(definition)
        checked = check_inputs(definition, {**INPUTS, **inputs})
        request = r.RunRequested(self.clock.now(), 0, checked, version(data))
        new = NewRun(data, request.version, definition.name, request)
        (turn,) = self.store.create([new], engine.name)
        engine.begin([turn], [new])
        return turn.run_id

    def _finish(self, run: int, engine: Engine, given: Mapping[str, Function]) -> None:
        """Drive it to its end, with another worker after each crash."""
        quiet = 0
        while self.status(run) not in ENDED:
            try:
                is_busy = engine.tick(0.0)
            except Crash:
                self.crashed(run)
                assert self.store.expire(engine.name, is_dead=True)
                engine = self._engine(given)
                engine.take_up(self._runs(run))
                continue
            quiet = 0 if is_busy else quiet + 1
            if quiet > 3:
                # Whatever it waits for is over then.
                self.clock.advance(10.0)
            assert quiet < 100, "it waits for ever"

    def _engine(self, given: Mapping[str, Function]) -> Engine:
        name = f"w{next(self._numbers)}"
        self.store.register(WorkerRecord(name, "here", 1))
        executor = _Executor(name, self.clock, self.store, given)
        return Engine(self.store, self.clock, Cel({}), name, executor)


class _Executor(FakeExecutor):
    """Calls the function of a task in this process."""

    def __init__(self, name: str, clock: JumpingClock, store: Store, given: Mapping[str, Function]) -> None:
        super().__init__(name, clock, slots=1)
        self._store, self._given = store, given
        self._hanging: set[int] = set()

    def _end(self, lease: Lease, now: datetime) -> r.Report | None:
        task = lease.task
        if lease.token in self.stopped:
            return r.TaskEnded(now, task.place, task.attempt, Outcome(signal=15, is_stopped=True))
        if lease.token in self._hanging:
            return None
        try:
            output = self._call(task)
        except StepError as error:
            outcome = Outcome(reported=(error.report(),))
            return r.TaskEnded(now, task.place, task.attempt, outcome)
        if output is HANGS:
            self._hanging.add(lease.token)
            return None
        if isinstance(output, Outcome):
            return r.TaskEnded(now, task.place, task.attempt, output)
        artifacts: tuple[dict[str, Any], ...] = ()
        if isinstance(output, Kept):
            name = f"{task.run_id}/{task.place}/{task.visit}/{task.attempt}/rows.jsonl"
            kept = make_reference(self._store.artifacts.keep(name, output.rows, "file"))
            output, artifacts = {**output.output, "file": kept}, (kept,)
        plain = msgspec.json.decode(msgspec.json.encode(output))
        return r.TaskEnded(now, task.place, task.attempt, output=plain, artifacts=artifacts)

    def _call(self, task: Task) -> Any:
        module, _, name = task.params.get("call", "").partition(":")
        function = self._given.get(task.step) or getattr(import_module(module), name)
        return function(**task.params.get("args", {}))


def failing(error: StepError) -> Function:
    """A function that always fails in this way."""

    def fail(**_: Any) -> Any:
        raise error

    return fail


class Flaky:
    """Fails twice, and then does what the function does."""

    def __init__(self, function: Function, error: StepError, *, times: int = 2) -> None:
        self._function, self._error, self._left = function, error, times
        self.calls = 0

    def __call__(self, **arguments: Any) -> Any:
        self.calls += 1
        if self.calls <= self._left:
            raise self._error
        return self._function(**arguments)
