"""The pytest plugin: fixtures for tests of workflows, and the stories of their runs below a test that failed.

Every pytest that finds Mulligan installed loads this module, so it imports pytest alone. All else is imported by the
first test that uses a fixture.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from mulligan.client.home import Home
    from mulligan.client.loading import Runnable
    from mulligan.core.model.workflow import Workflow
    from mulligan.programs.rehearsing import HasHistory, Rehearsal
    from mulligan.testing.history import History

# How many runs are described below a test that failed, and how many lines of each: the last ones.
RUNS_MAX, LINES_MAX = 3, 40
# How long a process that a test left behind may take to end.
STOP_SECONDS = 10.0


class HistoryFactory(Protocol):
    """What the fixture `history` gives."""

    def __call__(self, flow: Runnable, /, *, inputs: Mapping[str, Any] | None = None, **given: Any) -> History:
        """Start a run of a workflow in memory. The test sets the result of each command."""


class RehearsalFactory(Protocol):
    """What the fixture `rehearse` gives."""

    def __call__(
        self,
        flow: Runnable,
        /,
        *,
        fakes: Mapping[str, Any] | None = None,
        folder: str | os.PathLike[str] = ".",
        inputs: Mapping[str, Any] | None = None,
        **given: Any,
    ) -> History:
        """Run a workflow in memory with its real shell commands, in `folder`; the other steps end as `fakes` say."""


class ProgramRehearsalFactory(Protocol):
    """What the fixture `rehearse_program` gives."""

    def __call__(
        self,
        program: Any,
        /,
        *args: Any,
        fakes: Mapping[str, Any] | None = None,
        real: bool | Collection[str] = False,
        inputs: Mapping[str, Any] | None = None,
        **given: Any,
    ) -> Rehearsal:
        """Run a program in memory: steps end as `fakes` say, those in `real` run their functions."""


class ProgramReplay(Protocol):
    """What the fixture `replay_program` gives."""

    def __call__(self, program: Any, run: HasHistory, /) -> None:
        """Run a program over what is recorded of a run. It fails if the program would call something else."""


_HOME = pytest.StashKey["Home"]()
_HISTORIES = pytest.StashKey["list[History]"]()
_REHEARSALS = pytest.StashKey["list[Rehearsal]"]()


@pytest.fixture
def mulligan_home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """A home for the runs of one test: `mulligan_home.run("nightly.yaml", target="prod")`.

    It is in the temporary folder of the test. While the test runs, `mulligan.run`, `mulligan.open` and the command
    line use it too, whatever the environment says. Workers that the test leaves behind are stopped.
    """
    folder = tmp_path / ".mulligan"
    with pytest.MonkeyPatch.context() as environ:
        environ.delenv("MULLIGAN_STORE", raising=False)
        environ.setenv("MULLIGAN_HOME", str(folder))
        import mulligan

        home = mulligan.open()
        request.node.stash[_HOME] = home
        with home:
            yield home
            _stop_workers(home)


@pytest.fixture
def history(request: pytest.FixtureRequest) -> HistoryFactory:
    """Start a run in memory, in which the test sets the result of each command.

        run = history("deploy.yaml", target="prod")
        run.fail("build", exit_code=75).wait(3600).ok("build")

    Nothing is executed, and time jumps. What decides is the
    real core, with the real expressions. It takes a file, `mulligan.load(…)`, a `Workflow` or a function with `@flow`.
    """
    histories = request.node.stash.setdefault(_HISTORIES, [])

    def start(flow: Runnable, /, *, inputs: Mapping[str, Any] | None = None, **given: Any) -> History:
        workflow, checked = _checked(flow, inputs, given)
        from mulligan.language.expressions import Cel
        from mulligan.testing.history import History

        run = History(workflow, evaluator=Cel()).start(checked)
        histories.append(run)
        return run

    return start


@pytest.fixture
def rehearse(request: pytest.FixtureRequest) -> RehearsalFactory:
    """Run a workflow in memory with its real shell commands.

        run = rehearse("deploy.yaml", fakes={"fetch": {"status": 503}})

    Steps that are no shell commands end as `fakes` say. The commands run in the current folder, or in `folder`.
    """
    histories = request.node.stash.setdefault(_HISTORIES, [])

    def run(
        flow: Runnable,
        /,
        *,
        fakes: Mapping[str, Any] | None = None,
        folder: str | os.PathLike[str] = ".",
        inputs: Mapping[str, Any] | None = None,
        **given: Any,
    ) -> History:
        workflow, checked = _checked(flow, inputs, given)
        from mulligan.client.session import ExplainedErrors
        from mulligan.testing.rehearsal import rehearse as rehearse_workflow

        with ExplainedErrors():
            found = rehearse_workflow(workflow, Path(folder), inputs=checked, fakes=fakes)
        histories.append(found)
        return found

    return run


@pytest.fixture
def rehearse_program(request: pytest.FixtureRequest) -> ProgramRehearsalFactory:
    """Run a function with `@program` in memory.

        found = rehearse_program(nightly, "monday", fakes={"fetch": [1, 2], "load": StepFailed("QUOTA")})
        assert found.result == {"loaded": 0}

    Fakes are by the name of a step: a value, an exception, a function, an iterator with one end after the other. Steps
    whose names are in `real` run their functions; with `real=True` all that have no fake do. Any other step is refused.
    Sleeps take no time; `approve` needs a fake: True, False, or None for nobody; so does `wait_event`: the value of the
    event, or None if nobody sends one.
    """
    rehearsals = request.node.stash.setdefault(_REHEARSALS, [])

    def run(
        program: Any,
        /,
        *args: Any,
        fakes: Mapping[str, Any] | None = None,
        real: bool | Collection[str] = False,
        inputs: Mapping[str, Any] | None = None,
        **given: Any,
    ) -> Rehearsal:
        from mulligan.programs.rehearsing import rehearse as rehearse_in_memory

        found = rehearse_in_memory(program, *args, fakes=fakes, real=real, inputs=inputs, **given)
        rehearsals.append(found)
        return found

    return run


@pytest.fixture
def replay_program() -> ProgramReplay:
    """Run a function with `@program` over what is recorded of a run, in memory: no step runs.

        for run in mulligan.open().runs(workflow="nightly", status="running"):
            replay_program(nightly, run)

    It fails with what was recorded and what is asked now, if the program would call something else. So a change of a
    program that has open runs is found before they go on.
    """
    from mulligan.programs.rehearsing import replay

    return replay


def _checked(
    flow: Runnable, inputs: Mapping[str, Any] | None, given: Mapping[str, Any]
) -> tuple[Workflow, dict[str, Any]]:
    """The checked workflow, and its inputs with their defaults."""
    from mulligan.programs.program import Program

    if isinstance(flow, Program):
        raise TypeError(f"{flow!r} decides while it runs, so only the fixture 'rehearse_program' runs it")
    from mulligan.client.session import ExplainedErrors

    with ExplainedErrors():
        from mulligan.client.loading import find_workflow

        workflow = find_workflow(flow).workflow
        from mulligan.language.input_values import check_inputs

        return workflow, check_inputs(workflow, {**(inputs or {}), **given})


def _stop_workers(home: Home) -> None:
    """Stop the processes that still work on the runs of a test: nothing may write to a folder that is removed."""
    alive = {one.pid for one in home.workers() if one.is_alive} - {os.getpid()}
    for pid in alive:
        _signal(pid, signal.SIGTERM)
    until = time.monotonic() + STOP_SECONDS
    while alive and time.monotonic() < until:
        time.sleep(0.02)
        alive &= {one.pid for one in home.workers() if one.is_alive}
    for pid in alive:
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        # It has ended meanwhile.
        pass


# -- what is loaded --------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Keep pytest from rewriting the assertions of all our modules, as it does for the packages of plugins.

    That takes a second of each process that cannot keep the result, and shows a user nothing: they are not tests.
    """
    hook: Any = pluginmanager.rewrite_hook
    marked: set[str] = getattr(hook, "_must_rewrite", set())
    if "mulligan" in marked:
        marked.discard("mulligan")
        # Clears what it has found out about names so far.
        hook.mark_rewrite()


# -- below a test that failed ----------------------------------------------------------------------------------------


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Add the stories of its runs to the report of a test that failed."""
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    if report.when == "call" and report.failed:
        report.sections += [*_stories_of_runs(item), *_stories_of_histories(item), *_stories_of_programs(item)]


def _stories_of_runs(item: pytest.Item) -> Iterator[tuple[str, str]]:
    home = item.stash.get(_HOME, None)
    if home is None:
        return
    try:
        for run in home.runs(limit=RUNS_MAX):
            yield f"mulligan run {run.id} of '{run.workflow}': {run.status}", _last_lines(run.explain())
    except Exception as error:
        # A home that cannot be read must not hide why the test failed.
        yield "mulligan", f"the runs of this test cannot be read: {error}"


def _stories_of_histories(item: pytest.Item) -> Iterator[tuple[str, str]]:
    for run in item.stash.get(_HISTORIES, [])[-RUNS_MAX:]:
        from mulligan.history.story import story

        lines = [f"{line.place or 'run'}: {line.text}" for line in story(run.log, run.state.workflow)]
        lines.append("steps: " + ", ".join(f"{name} {status}" for name, status in run.statuses.items()))
        if run.queued:
            lines.append(f"queued: {', '.join(run.queued)}")
        yield f"mulligan history of '{run.state.workflow.name}': {run.status}", _last_lines("\n".join(lines))


def _stories_of_programs(item: pytest.Item) -> Iterator[tuple[str, str]]:
    for found in item.stash.get(_REHEARSALS, [])[-RUNS_MAX:]:
        yield f"mulligan program: {found.status}", _last_lines("\n".join(found.story()))


def _last_lines(text: str) -> str:
    lines = text.splitlines()
    cut = [f"… {len(lines) - LINES_MAX:,} lines before"] if len(lines) > LINES_MAX else []
    return "\n".join([*cut, *lines[-LINES_MAX:]])
