"""A world for engines: a store, a clock that jumps, hands that run nothing; and what a crash leaves of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.nightly import POSTGRES, sample
from tests.support.store_files import write_empty_store

from mulligan.core.model import reports as r
from mulligan.core.model.events import Entry
from mulligan.core.model.workflow import Workflow, decode, encode, version
from mulligan.core.state.state import State
from mulligan.core.turn import fold
from mulligan.engine.engine import Engine
from mulligan.language import load_text
from mulligan.language.expressions import Cel
from mulligan.ports import NewRun, Store, WorkerRecord
from mulligan.store import open_store
from mulligan.testing.clock import JumpingClock
from mulligan.testing.fake_executor import Ends, FakeExecutor, all_well
from mulligan.testing.memory.memory_store import MemoryStore
from proof.invariants.run_invariants import check


class LogFacts:
    """What an engine's watcher was shown."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.troubles: list[str] = []

    def committed(self, state: State, entries: Any, is_ordinary: bool = False) -> None:
        self.entries.extend(entries)

    def trouble(self, message: str) -> None:
        self.troubles.append(message)


class World:
    def __init__(self, store: Store, clock: JumpingClock) -> None:
        self.store = store
        self.clock = clock
        self.count = 0

    def engine(self, *, slots: int = 4, ends: Ends = all_well, root_run_id: int | None = None) -> Engine:
        """A new worker's engine."""
        self.count += 1
        name = f"w{self.count}"
        self.store.register(WorkerRecord(name, "here", self.count))
        executor = FakeExecutor(name, self.clock, slots=slots, ends=ends)
        return Engine(self.store, self.clock, Cel({}), name, executor, root_run_id=root_run_id, observer=LogFacts())

    def start(self, text: str | Workflow, engine: Engine | None = None, **inputs: Any) -> int:
        """A new run of a workflow; with an engine it is its own at once."""
        workflow = load_text(text) if isinstance(text, str) else text
        data = encode(workflow)
        request = r.RunRequested(self.clock.now(), 0, inputs, version(data))
        new = NewRun(data, request.version, workflow.name, request)
        (turn,) = self.store.create([new], engine.name if engine else "")
        if engine is not None:
            engine.begin([turn], [new])
        return turn.run_id

    def settle(self, *engines: Engine, ticks_max: int = 500) -> None:
        """Let the engines work until nothing happens any more."""
        quiet = 0
        for _ in range(ticks_max):
            is_busy = sum(engine.tick(0.0) for engine in engines) or not all(engine.is_settled for engine in engines)
            # Twice: what is due is only known after a look.
            quiet = 0 if is_busy else quiet + 1
            if quiet == 2:
                return
        raise AssertionError(f"the engines still work after {ticks_max} rounds")

    def pass_time(self, *engines: Engine, seconds: float) -> None:
        self.clock.advance(seconds)
        self.settle(*engines)

    def expire(self, engine: Engine) -> None:
        assert self.store.expire(engine.name, is_dead=True)

    def crashes(self, passes: int) -> Sequence[int]:
        """At which passes of a fault point to crash: at each of them in memory, on other stores at a few by day."""
        each = range(1, passes + 1)
        return each if isinstance(self.store, MemoryStore) else sample(each, 4)

    # -- looking -----------------------------------------------------------------------------------------------------

    def workflow(self, run_id: int) -> Workflow:
        return decode(self.store.load(run_id).workflow)

    def state(self, run_id: int) -> State:
        """The run as its log tells it; every promise is checked on the way."""
        log = self.store.log(run_id)
        first = self.workflow(run_id)
        state = fold(first, log)
        check(log, state, first)
        return state

    def statuses(self, run_id: int) -> dict[str, str]:
        return {place.key: place.status for place in self.state(run_id).steps()}

    def status(self, run_id: int) -> str:
        return self.store.run(run_id).status

    def facts(self, run_id: int) -> list[str]:
        return [type(entry.fact).__name__ for entry in self.store.log(run_id)]


@pytest.fixture(params=["memory", "sqlite", POSTGRES])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """On PostgreSQL, which others may share, tasks that wait are asked for. Its clock is the server's, and ahead."""
    clock = JumpingClock()
    store = _opened(request, tmp_path, clock)
    yield World(store, clock)
    store.close()


def _opened(request: pytest.FixtureRequest, folder: Path, clock: JumpingClock) -> Store:
    if request.param == "postgres":
        return open_store(request.getfixturevalue("store_schema_url"))
    if request.param == "memory":
        return MemoryStore(clock=clock)
    write_empty_store(folder / "mulligan.db")
    return open_store(folder / "mulligan.db", clock=clock)
