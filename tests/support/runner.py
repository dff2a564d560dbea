"""Runs of real commands by the real engine, in the test's own process: what `mulligan run` does, without its words.

    def test_it(live: Live) -> None:                     # once on SQLite, once on PostgreSQL
        ran = live.run(WORKFLOW)

        assert ran.status == "completed"
        assert ran.steps["build"]["attempts"] == 2
        assert [fact.number for fact in ran.facts(e.RetryScheduled, place="build")] == [1, 2]

`meanwhile` is another terminal: a function in a thread of its own, with a service of its own.

    def cancel(there: Terminal) -> None:
        there.wait_for(e.AttemptStarted, place="build")
        there.service.cancel(there.run_id)

    ran = live.run(WORKFLOW, meanwhile=cancel)

Whenever a run rests, its log and those of its child runs are held against the promises, and the tables against the log.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from tests.support.forked_process import start_mulligan
from tests.support.store_files import write_empty_store

import mulligan
from mulligan.core.model import events as e
from mulligan.core.state.state import State
from mulligan.formats import load
from mulligan.service.driving.driver import Capacity, Driver, Ending
from mulligan.service.driving.outcome import exit_code
from mulligan.service.home import DATABASE, Home
from mulligan.service.logs.logs import Part
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.service import Service
from proof.invariants.run_invariants import check

# For what takes milliseconds: a busy machine may take long, and a wait that is met costs nothing.
DEADLINE_SECONDS = 60.0
LOOK_SECONDS = 0.005
# Room for what a test runs at once, whatever the machine has.
ROOM = Capacity(cpus=4.0, memory=4 << 30)

Fact = TypeVar("Fact", bound=e.Fact)
Meanwhile = Callable[["Terminal"], None]


class Ran(msgspec.Struct, frozen=True):
    """A run that rests: how it stands, and all that is known of it."""

    run_id: int
    ending: Ending
    # What `--json` prints.
    shown: dict[str, Any]
    log: list[e.Entry]
    # What `explain` tells, as "place: sentence".
    story: list[str]

    @property
    def status(self) -> str:
        return str(self.shown["status"])

    @property
    def steps(self) -> dict[str, Any]:
        return dict(self.shown["steps"])

    @property
    def exit_code(self) -> int:
        return exit_code(self.ending, self.status)

    def facts(self, kind: type[Fact], **fields: Any) -> list[Fact]:
        """Every fact of a kind whose fields are these, in order."""
        return [entry.fact for entry in self.entries(kind, **fields)]  # type: ignore[misc]

    def entries(self, kind: type[e.Fact], **fields: Any) -> list[e.Entry]:
        """The same with their numbers and times."""
        return [entry for entry in self.log if _is(entry.fact, kind, fields)]


class ExecutionRecorder:
    """Looks on while an engine works, and lets others wait for what becomes true. Ends a run that takes too long."""

    def __init__(self) -> None:
        self.seen: list[e.Entry] = []
        self.is_over = False
        self._news = threading.Condition()
        self._deadline = time.monotonic() + DEADLINE_SECONDS

    def committed(self, state: State, entries: Sequence[e.Entry], is_ordinary: bool = False) -> None:
        with self._news:
            self.seen.extend(entries)
            self._news.notify_all()

    def trouble(self, message: str) -> None:
        pass

    def tick(self) -> None:
        assert time.monotonic() < self._deadline, f"the run does not end; its last facts: {self.seen[-5:]}"

    def close(self) -> None:
        with self._news:
            self.is_over = True
            self._news.notify_all()

    def wait_for(self, kind: type[e.Fact], count: int, fields: dict[str, Any]) -> e.Entry:
        """The n-th entry of that kind, as soon as it is written."""
        found: list[e.Entry] = []

        def is_there() -> bool:
            found[:] = [entry for entry in self.seen if _is(entry.fact, kind, fields)]
            return len(found) >= count or self.is_over

        with self._news:
            self._news.wait_for(is_there, DEADLINE_SECONDS)
        assert len(found) >= count, f"there were {len(found)} of {count} {kind.__name__} with {fields}"
        return found[count - 1]


class Terminal(msgspec.Struct, frozen=True):
    """Another terminal, while a run is driven: its verbs are answered by whoever drives."""

    run_id: int
    folder: Path
    service: Service
    recorder: ExecutionRecorder

    def wait_for(self, kind: type[Fact], count: int = 1, **fields: Any) -> Fact:
        """The n-th fact of a kind whose fields are these, of the run or one of its children, once it is written."""
        return self.recorder.wait_for(kind, count, fields).fact  # type: ignore[return-value]

    def wait_until(self, is_so: Callable[[], object], otherwise: str = "it never came") -> None:
        """Until something outside of the logs is true: a file is there, a process is gone."""
        wait_until(is_so, otherwise)


class Live:
    """A folder to work in, and a home beside it in which runs are kept."""

    def __init__(self, folder: Path, home: Home) -> None:
        self.folder = folder
        self.home = home
        self.service = Service(home)

    def close(self) -> None:
        self.service.close()

    # -- running ------------------------------------------------------------------------------------------------------

    def run(
        self,
        workflow: str | Path,
        *,
        inputs: dict[str, Any] | None = None,
        meanwhile: Meanwhile | None = None,
        wait_seconds: float = 0.0,
        room: Capacity = ROOM,
        named: str | None = None,
        changed_only: bool = False,
        forced: Sequence[str] = (),
    ) -> Ran:
        """Run a workflow (its text, or its file; of the system that is named) until it ends or waits for a person."""
        path = workflow if isinstance(workflow, Path) else self.write("flow.yaml", workflow)
        workflow = load(path, named=named)
        prepared = prepare(workflow, inputs or {}, self.folder, changed_only=changed_only, forced=forced)
        return self._drive(
            lambda driver: self.service.changes.create(prepared, driver)[0], meanwhile, wait_seconds, room
        )

    def run_within(self, workflow: str, milliseconds: int, has_begun: Callable[[Ran], object]) -> Ran:
        """Run a workflow whose text has a limit LIMIT, until what has to begin within it has begun.

        The limit is doubled if it has not: how long that takes is a matter of the machine.
        """
        for doublings in range(8):
            ran = self.run(workflow.replace("LIMIT", f"{milliseconds << doublings}ms"))
            if has_begun(ran):
                return ran
        raise AssertionError("it never began")

    def resume(
        self,
        run_id: int,
        *,
        meanwhile: Meanwhile | None = None,
        wait_seconds: float = 0.0,
        room: Capacity = ROOM,
    ) -> Ran:
        """Drive a run on that nobody drives, until it has ended or waits for a person."""
        return self._drive(lambda driver: run_id, meanwhile, wait_seconds, room)

    def _drive(
        self, begin: Callable[[Driver], int], meanwhile: Meanwhile | None, wait_seconds: float, room: Capacity
    ) -> Ran:
        recorder = ExecutionRecorder()
        with self.service.driving.driver(room, recorder) as driver:
            run_id = begin(driver)
            with self._terminal(run_id, driver, recorder, meanwhile):
                ending = driver.drive(run_id, wait_seconds)
        return self.look(run_id, ending)

    @contextmanager
    def _terminal(
        self, run_id: int, driver: Driver, recorder: ExecutionRecorder, meanwhile: Meanwhile | None
    ) -> Iterator[None]:
        """`meanwhile` in a thread; what goes wrong there goes wrong here, and ends the run."""
        if meanwhile is None:
            yield
            return
        wrong: list[BaseException] = []
        thread = threading.Thread(target=self._act, args=(run_id, driver, recorder, meanwhile, wrong))
        thread.start()
        try:
            yield
        finally:
            recorder.close()
            thread.join()
            if wrong:
                raise wrong[0]

    def _act(
        self, run_id: int, driver: Driver, recorder: ExecutionRecorder, meanwhile: Meanwhile, wrong: list[BaseException]
    ) -> None:
        # A service of its own: a connection to a store belongs to one thread.
        service = Service(self.home)
        try:
            meanwhile(Terminal(run_id, self.folder, service, recorder))
        except BaseException as error:
            wrong.append(error)
            # As Ctrl-C twice: all that runs ends at once.
            driver.interrupts += 2
        finally:
            service.close()

    # -- looking ------------------------------------------------------------------------------------------------------

    def look(self, run_id: int, ending: Ending = "ended") -> Ran:
        """A run as it stands, after every promise has been asked about."""
        self.expect_promises(run_id)
        story = [
            f"{one.line.place}: {one.line.text}" if one.line.place else one.line.text
            for one in self.service.runs.story(run_id)
        ]
        return Ran(run_id, ending, self.service.runs.show(run_id), list(self.service.reader.events(run_id)), story)

    def expect_promises(self, run_id: int) -> None:
        """The log keeps every promise, and the tables say what it says; of the child runs, too."""
        check(self.service.reader.events(run_id), self.service.reader.state(run_id))
        assert self.service.runs.replay(run_id).differing == ()
        for child in self.service.reader.store.children(run_id):
            self.expect_promises(child.run_id)

    def children(self, run_id: int) -> list[Ran]:
        """The child runs, in the order in which they began."""
        found = sorted(child.run_id for child in self.service.reader.store.children(run_id))
        return [self.look(child) for child in found]

    def logs(self, run_id: int, step: str, part: Part = "own", *, item: int | None = None) -> list[tuple[str, str]]:
        """What `mulligan logs` shows of a step (its handlers, its scripts): stdout and stderr of each attempt."""
        found = self.service.logs.step_logs(run_id, step, item=item, part=part)
        return [(one.stdout.decode(), one.stderr.decode()) for one in found]

    # -- the folder ---------------------------------------------------------------------------------------------------

    def write(self, name: str, text: str = "") -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def read(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")

    def lines(self, name: str) -> list[str]:
        """The lines of a file that commands write to; none where there is no such file."""
        path = self.folder / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    # -- processes of their own ----------------------------------------------------------------------------------------

    @contextmanager
    def process(self, *words: object) -> Iterator[subprocess.Popen[str]]:
        """A command line in a process that may be killed; what is left of it ends with the context."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        child = start_mulligan(words, self.environment, cwd=self.folder, text=True, **pipes)
        try:
            yield child
        finally:
            child.kill()
            child.communicate()

    def run_killed_when_up(self, text: str) -> Ran:
        """Run it until a command says `up` into the pipe of that name, kill its driver, put `go` there, resume it."""
        self.write("flow.yaml", text)
        os.mkfifo(self.folder / "up")
        with self.process("run", "flow.yaml") as driver:
            assert (self.folder / "up").read_text() == "up\n"
            driver.kill()
            driver.wait()
            self.write("go")
            wait_until(lambda: not self.service.runs.is_driven(1))
            return self.resume(1)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find the same runs."""
        return {
            **os.environ,
            "PYTHONPATH": str(Path(mulligan.__file__).parents[1]),
            "MULLIGAN_HOME": str(self.home.folder),
            **({"MULLIGAN_STORE": self.home.store_url} if self.home.store_url else {}),
        }


@contextmanager
def opened(folder: Path, store_url: str = "") -> Iterator[Live]:
    """A runner whose commands work in an empty folder below this one, on SQLite or on the server that is named."""
    (folder / "work").mkdir()
    if not store_url:
        write_empty_store(folder / "home" / DATABASE)
    found = Live(folder / "work", Home(folder / "home", store_url))
    try:
        yield found
    finally:
        found.close()


def wait_until(is_so: Callable[[], object], otherwise: str = "it never came") -> None:
    """Look again and again until it is so."""
    until = time.monotonic() + DEADLINE_SECONDS
    began = time.thread_time()
    while not is_so():
        assert time.monotonic() < until, otherwise
        # Whoever is waited for needs the processor more: looking takes a fifth of it at most.
        time.sleep(LOOK_SECONDS + 4 * (time.thread_time() - began))
        began = time.thread_time()


def _is(fact: e.Fact, kind: type[e.Fact], fields: dict[str, Any]) -> bool:
    return isinstance(fact, kind) and all(getattr(fact, name) == value for name, value in fields.items())
