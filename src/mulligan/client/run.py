"""A run, as a program reads and changes it."""

from __future__ import annotations

import builtins
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from mulligan.client.driving import DEFAULT_OPTIONS, DrivingOptions, drive, read_seconds
from mulligan.client.inputs import plain_inputs
from mulligan.client.loading import Given, Runnable, find_workflow
from mulligan.client.notebook import run_html
from mulligan.client.session import ExplainedErrors, Session
from mulligan.client.steps import Step, StepsOfRun
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import InputInvalid, MulliganError, RunFailed, RunNotDriven, RunNotFinished, WaitTimedOut

if TYPE_CHECKING:
    from mulligan.service.decisions.pending import PendingEntry
    from mulligan.service.driving.driver import Driver
    from mulligan.service.logs.log_following import LogPiece
    from mulligan.service.runs.changes.fork_at import EventFork
    from mulligan.service.runs.changes.program_corrections import RecordedRun
    from mulligan.service.runs.changes.round_plans import ForkResult
    from mulligan.service.runs.views.run_list import FailedStep, RunLine, WaitReason
    from mulligan.service.runs.views.run_snapshot import FailedVisit, RunSnapshot, RunStatus
    from mulligan.service.runs.views.run_story import LocatedLine, LocatedWait
    from mulligan.service.service import Service


Wanted = TypeVar("Wanted")


class RunHeldUp(UserWarning):
    """A run that is waited for needs a person or a process that drives it."""


class Story(str):
    """The story of a run, as `mulligan explain` prints it. In a notebook it is a table."""

    lines: Sequence[LocatedLine] = ()
    waits: Sequence[LocatedWait] = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from mulligan.client import notebook_html

        return notebook_html.render_story(self.lines, self.waits)


class Runs(list["Run"]):
    """A list of runs. In a notebook it is a table."""

    def _repr_html_(self) -> str:
        from mulligan.client import notebook_html

        if not self:
            return notebook_html.render_runs([])
        with self[0]._session.service() as service:
            return notebook_html.render_runs(service.runs.summarize([run.id for run in self]))


class Run:
    """A run of a workflow. Every attribute is read when it is asked for, so it is never out of date.

    `run.steps` shows the steps at the moment at which it was asked for. A run can be used from any thread, and after
    the home that gave it was closed.
    """

    def __init__(
        self, session: Session, run_id: int, options: DrivingOptions = DEFAULT_OPTIONS, *, is_driven_here: bool = False
    ) -> None:
        self._session = session
        self._id = run_id
        self._options = options
        # Whether answers to what it waits for continue it in this process.
        self._is_driven_here = is_driven_here
        self._read: tuple[RunSnapshot, StepsOfRun] | None = None

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def id(self) -> int:
        """Its number in its home."""
        return self._id

    @property
    def workflow(self) -> str:
        """The name of its workflow."""
        return self._line.workflow

    @property
    def status(self) -> RunStatus:
        """`running`, `waiting` (for a person), `paused`, `completed`, `failed` or `cancelled`."""
        with self._session.service() as service:
            return service.runs.status(self._id)

    @property
    def is_driven(self) -> bool:
        """Whether a live process drives it. A run that nobody drives goes on after `resume`."""
        with self._session.service() as service:
            return service.runs.is_driven(self._id)

    @property
    def inputs(self) -> dict[str, Any]:
        """Its inputs, defaults included."""
        return self._snapshot[0].inputs

    @property
    def outputs(self) -> dict[str, Any]:
        """The outputs that the workflow declares, as plain JSON; empty before the run has ended.

        If the run has failed, an output that a step did not make is None. `run.result()` has tables and arrays, too.
        """
        return self._snapshot[0].outputs

    @property
    def state(self) -> dict[str, Any]:
        """What its program has published last, with `publish_state`; empty for other runs."""
        return self._snapshot[0].state.run.published

    @property
    def failures(self) -> list[FailedVisit]:
        """Every failure of a step, in order, also those that were handled or recovered.

        Each has `step`, `visit`, `failure` (with `code`, `message`, `exit_code` and more), `is_handled` and
        `recovered_by`. Failures that a later round runs again are left out, and so are attempts that a retry has made
        good (`run.steps["fetch"].attempts`) and items that a map does without (`run.steps["clean"].items`).
        """
        return self._snapshot[0].failures

    @property
    def steps(self) -> StepsOfRun:
        """The steps by name, as they are now: `run.steps["build"].attempts[0].stderr`."""
        return self._snapshot[1]

    @property
    def end(self) -> Step | None:
        """What the workflow runs last (`end`); None before the run has started."""
        return self._snapshot[1].end

    @property
    def round(self) -> int:
        """1, and one more for each `retry`."""
        return self._line.round

    @property
    def is_degraded(self) -> bool:
        """Whether it completed although something failed on the way."""
        return self._line.degraded

    @property
    def reason(self) -> str:
        """Why it was cancelled, paused or stopped; "" if there is nothing to say."""
        return self._line.reason

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return self._line.labels

    @property
    def created_at(self) -> datetime:
        """When it was started."""
        return self._line.created_at

    @property
    def seconds(self) -> float:
        """How long it took, to its end or until now."""
        return self._line.seconds

    @property
    def waiting_for(self) -> list[WaitReason]:
        """What it waits for or does now, the most important first; empty once it has ended."""
        return self._line.waiting_for

    @property
    def pending(self) -> list[PendingEntry]:
        """What waits for a person in it and in the runs that it called: parked steps, approvals, pauses."""
        with self._session.service() as service:
            return [one for one in service.decisions.list_pending() if self._id in (one.run_id, one.root_run_id)]

    @property
    def parent(self) -> Run | None:
        """The run that called it; None for a run at the top."""
        parent = self._line.parent_run_id
        return None if parent is None else Run(self._session, parent, self._options)

    @property
    def children(self) -> list[Run]:
        """The runs that it called, in the order of the calls."""
        with self._session.service() as service:
            found = sorted(service.runs.called(self._id).values())
        return [Run(self._session, run_id, self._options) for run_id in found]

    @overload
    def result(self, step: str = "") -> Any: ...

    @overload
    def result(self, step: str = "", *, type: builtins.type[Wanted]) -> Wanted: ...

    @overload
    def result(self, step: str = "", *, type: Any) -> Any: ...

    def result(self, step: str = "", *, type: Any = None) -> Any:
        """The output of a step, or with "" the outputs of the run, as what it was: tables and arrays are read.

        `type` is what it should be: a dataclass, `datetime`, `polars.DataFrame`. By default it is what the function of
        the step is annotated to return, if this program has imported it. A map step gives the list of its results.
        A file that a step kept is its bytes, or its path where the type says `Path`.
        """
        # Loaded only if it is asked for, since it loads what reads annotations.

        snapshot, steps = self._snapshot
        with self._session.service() as service:
            from mulligan.client import results

            if not step:
                return results.read_result(service, "the output of the run", snapshot.outputs, type)
            return results.read_step_result(service, snapshot, steps[step].name, type)

    def program_history(self) -> RecordedRun:
        """What is recorded of a run of a program: what it was called with, its calls, and how they have ended.

        For the fixture `replay_program` of pytest, which runs a changed program over it.
        """
        with self._session.service() as service:
            return service.runs.program_history(self._id)

    def explain(self, step: str = "", *, tree: bool = False) -> Story:
        """What happened in the run, or to one step, and what it waits for; with `tree` also in the runs it called.

        print(run.explain())
        """
        with self._session.service() as service:
            story, waits = list(service.runs.story(self._id, step, is_tree=tree)), service.runs.waits(self._id, step)
        from mulligan.service.rendering.story_text import describe_question, format_story, format_wait

        lines = list(format_story(iter(story)))
        for one in waits:
            lines.append(format_wait(one))
            if question := describe_question(one.run_id, one.wait, self._session.option):
                lines.append(f"  {question}")
        found = Story("\n".join(lines))
        found.lines, found.waits = story, waits
        return found

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write a report of the run as one HTML page: failures, graph, timeline, logs. Returns its path.

        Only its owner can read the file, since it contains outputs and logs.
        """
        file = Path(path)
        with self._session.service() as service:
            found = service.runs.report(self._id, datetime.now(UTC))
            page = service.runs.report_page(found, folder=str(file.absolute().parent), home_option=self._session.option)
            from mulligan.service.authoring.named_files import write_file

            write_file(file, page.encode("utf-8", "replace"), is_private=True)
        return file

    def logs(self, step: str = "", *, item: int | None = None, attempt: int | None = None) -> Iterator[LogPiece]:
        """What the attempts of the run or of one step have written and write, line by line, until they end.

        for piece in run.logs("build"):
            print(piece.where, piece.stream, piece.data.decode())
        """
        with self._session.service() as service:
            from mulligan.service.logs.log_following import LogSelection

            selection = LogSelection(step, item, attempt)
            pieces = service.logs.follow_logs(self._id, selection, by_line=True)
            yield from (piece for piece in pieces if piece.stream is not None)

    def events(self) -> Iterator[dict[str, Any]]:
        """Everything that is recorded of the run, as plain data, the first event first."""
        with self._session.service() as service:
            for line in service.logs.event_lines(self._id):
                yield json.loads(line)

    def raise_for_status(self) -> Run:
        """The run itself if it has completed. Otherwise `RunFailed`, or `RunNotFinished` if it has not ended."""
        status = self.status
        if status == "completed":
            return self
        line = self._line
        with ExplainedErrors():
            if status not in RUN_ENDED:
                waits = f": {line.waiting_for[0].text}" if line.waiting_for else ""
                raise RunNotFinished(f"run {self._id} is {status}{waits}", hint="wait for it: run.wait()")
            hint = f"its story: run.explain(), or mulligan explain {self._id}{self._session.option}"
            raise RunFailed(_describe_end(line), hint=hint, run_id=self._id, status=status)

    # -- waiting and continuing --------------------------------------------------------------------------------------

    def wait(
        self,
        timeout: str | float | timedelta | None = None,
        *,
        until: Literal["ended", "person"] = "ended",
        forever: bool = False,
    ) -> Run:
        """Wait until the run has ended; with `until="person"` also until it needs a person. Returns the run.

        It does not drive the run: workers, or another process, do. `timeout` is a text such as "1h", seconds, or a
        `timedelta`; when it is over, `WaitTimedOut` (a `TimeoutError`) is raised and the run continues. If nothing
        drives the run, `RunNotDriven` is raised after a moment; with `forever` it is waited for a process that does.
        """
        with self._session.service() as service:
            seconds = None if timeout is None else read_seconds(timeout)
            for event in service.driving.wait_for_runs(
                [self._id], until=until, timeout_seconds=seconds, is_forever=forever
            ):
                if event.kind == "timeout":
                    status = service.runs.status(self._id)
                    raise WaitTimedOut(f"run {self._id} has not ended in {timeout}: it is {status}", run_id=self._id)
                if event.kind == "undriven" or (event.kind == "person" and until == "ended"):
                    assert event.hold_up is not None
                    raise RunNotDriven(_describe_hold_up(self._id, event.hold_up), run_id=self._id)
                if event.kind == "held_up" and event.hold_up is not None:
                    warnings.warn(_describe_hold_up(self._id, event.hold_up), RunHeldUp, stacklevel=2)
        return self

    def resume(self, step: str = "", *, steps: int | None = None, reason: str = "") -> Run:
        """Continue a run that was interrupted, that nothing is running, or that is paused; or one paused step.

        With `steps` so many steps run, and the run is paused again. Drives it here, to its end or its pause, unless
        another process drives it: then waits for that. Returns the run.
        """
        if steps is not None and (steps < 1 or step):
            hint = "leave out `step`, or `steps`" if step else "to run all of them, leave `steps` out"
            raise InputInvalid(f"`steps` is how many steps of the whole run are run next, not {steps}", hint=hint)
        with self._session.service() as service:
            service.changes.resume(self._id, step=step, steps=steps or 0, reason=reason)
        return self._continue()

    def retry(
        self,
        from_step: str = "",
        *,
        items: Sequence[int] | None = None,
        adjust: bool = False,
        flow: Runnable | None = None,
        inputs: Mapping[str, Any] | None = None,
        keep_completed: bool = False,
        force: bool = False,
        budget: Mapping[str, Any] | None = None,
        from_start: bool = False,
        reason: str = "",
        drive: bool = True,
    ) -> Run:
        """Give the run another round: what did not complete runs again, and what depends on it. Returns it.

        `from_step`: this step and those after it run again too; `items`: only these items of that map step, () for
        those that failed. `adjust`: steps that ran out of memory or time get more. `flow`: continue with a corrected
        workflow, and `inputs` for inputs that it adds. `keep_completed`: completed steps keep their results, even if a
        step before them runs again or the corrected workflow changes them.
        `force`: steps whose undo has failed run again, although what they did may still be in effect.
        `budget`: what agents may spend from now on, such as `{"cost": 5, "review.tokens": "50k"}`.
        Child runs that did not complete get their next round too; `from_start`: they start anew. The round of a child
        run is part of a round of the run at the top. With `drive=False` the new round is left to workers, or to
        `resume`.
        """
        corrected = None
        if flow is not None:
            given = self._find_corrected(flow, inputs)
            from mulligan.service.runs.changes.corrections import CorrectedWorkflow

            corrected = CorrectedWorkflow(given.workflow, plain_inputs(inputs or {}), given.file)
        with self._session.service() as service:
            _check_items(items, from_step)
            service.changes.retry(
                self._id,
                from_step=from_step,
                reason=reason,
                items=items,
                adjust=adjust,
                corrected=corrected,
                budgets=_budgets(budget),
                keep_completed=keep_completed,
                from_start=from_start,
                force=force,
            )
        return self._continue() if drive else self

    def fork(
        self,
        from_step: str = "",
        *,
        at: int | None = None,
        flow: Runnable | None = None,
        inputs: Mapping[str, Any] | None = None,
        keep_completed: bool = False,
        reason: str = "",
        drive: bool = True,
    ) -> Run:
        """A new run that keeps the results of this one before a step, with other inputs or another workflow.

        Or one that goes on from an event of this one: `at` is its `seq` in `run.events()`, and `reason` is recorded.
        `keep_completed`: completed steps are kept, even if another step before them than `from_step` runs again.
        It is driven here to its end; with `drive=False` it is left to workers. Returns the new run.
        """
        with ExplainedErrors():
            _check_fork(from_step, at, keep_completed=keep_completed, reason=reason, has_flow=flow is not None)
        given = None if flow is None else self._find_corrected(flow, inputs)
        workflow, file = (None, "") if given is None else given

        def begin(service: Service, driver: Driver | None) -> int:
            given, forks = plain_inputs(inputs or {}), service.event_forks
            fork: ForkResult | EventFork
            if at is None:
                fork = service.changes.fork(
                    self._id, from_step, given, workflow, driver, file=file, keep_completed=keep_completed
                )
            elif workflow is None:
                fork = forks.fork(self._id, at, driver, inputs=given, reason=reason)
            else:
                fork = forks.fork_with_file(self._id, at, given, workflow, driver, file=file)
            assert fork.fork_run_id is not None
            return fork.fork_run_id

        if drive:
            return Run(self._session, self._drive(begin), self._options, is_driven_here=True)
        with self._session.service() as service:
            return Run(self._session, begin(service, None), self._options)

    def _find_corrected(self, flow: Runnable, inputs: Mapping[str, Any] | None) -> Given:
        with self._session.service() as service:
            reading = service.starts.reading_of(self._id)
        return find_workflow(flow, {**reading["given"], **(inputs or {})}, reading["options"])

    def cancel(self, *, now: bool = False, reason: str = "") -> Run:
        """Stop the run: cleanup, undo and `end` still run; with `now` only `end`. Returns the run.

        If nothing else drives it, it is driven here to its end.
        """
        with self._session.service() as service:
            service.changes.cancel(self._id, now=now, reason=reason)
            record = service.runs.record(self._id)
            is_stopping = record.status not in RUN_ENDED and record.parent_run_id is None
        if is_stopping and self._is_left_alone():
            self._drive(lambda service, driver: self._id)
        return self

    def pause(self, step: str = "", *, reason: str = "") -> Run:
        """Start nothing more, or only this step no more, until `resume`. What runs may end. Returns the run."""
        with self._session.service() as service:
            service.changes.pause(self._id, step=step, reason=reason)
        return self

    # -- decisions ---------------------------------------------------------------------------------------------------

    def classify(
        self,
        step: str,
        verdict: Literal["retry", "fail"],
        reason: str,
        *,
        memory: str | int | None = None,
        timeout: str | float | timedelta | None = None,
        budget: Mapping[str, Any] | None = None,
        drive: bool | None = None,
    ) -> Run:
        """Decide about a parked step: retry it, or let it fail. Returns the run.

        `memory` ("4GiB") and `timeout` are for its next attempt. The run is driven on here, unless another process
        drives it, or a worker or a server takes it up; with `drive` it is or is not, as it says.
        """
        with self._session.service() as service:
            from mulligan.service.authoring.values import parse_size

            service.changes.classify(
                self._id,
                step,
                verdict,
                reason,
                memory=parse_size(memory) if isinstance(memory, str) else memory,
                timeout=None if timeout is None else read_seconds(timeout),
                budgets=_budgets(budget),
            )
        return self._continue_if(drive)

    def approve(self, step: str, reason: str, *, drive: bool | None = None) -> Run:
        """Give an approval that the run waits for. Returns the run, driven on as `classify` does."""
        return self._answer(step, reason, drive, is_approved=True)

    def refuse(self, step: str, reason: str, *, drive: bool | None = None) -> Run:
        """Refuse an approval that the run waits for. Returns the run, driven on as `classify` does."""
        return self._answer(step, reason, drive, is_approved=False)

    def _answer(self, step: str, reason: str, drive: bool | None, *, is_approved: bool) -> Run:
        with self._session.service() as service:
            service.changes.approve(self._id, step, is_approved=is_approved, reason=reason)
        return self._continue_if(drive)

    def send(self, name: str, value: Any = None, *, key: str = "", drive: bool | None = None) -> Run:
        """Send an event to the run: a step that waits for it takes it, or it is kept until one does.

        A second event with the same `key` is the same. Returns the run, driven on as `classify` does.
        """
        with self._session.service() as service:
            service.changes.send_event(self._id, name, plain_inputs({"value": value})["value"], key=key)
        return self._continue_if(drive)

    # -- how ---------------------------------------------------------------------------------------------------------

    def _continue_if(self, asked: bool | None) -> Run:
        """Drive the run on if that is asked for; by default if this program drove it, or if nothing else does."""
        if asked is None:
            asked = self._is_driven_here or self._is_left_alone()
        return self._continue() if asked else self

    def _is_left_alone(self) -> bool:
        """Whether nothing else drives the run on: no process, no worker of the store, no server."""
        with self._session.service() as service:
            root = service.runs.record(self._id).root_run_id or self._id
            return not self._session.is_remote and service.driving.who_continues(root) is None

    def _continue(self) -> Run:
        """Drive the run here. While another process drives it, wait; if that process ends before the run, go on."""
        with self._session.service() as service:
            root = service.runs.record(self._id).root_run_id or self._id
            # Whoever follows a run on a server needs not know which of its workers has it.
            record = service.runs.record(root) if self._session.is_remote else service.driving.wait_for_driver(root)
        if record.status not in (*RUN_ENDED, "paused"):
            self._drive(lambda service, driver: root)
            self._is_driven_here = True
        return self

    def _drive(self, begin: Callable[[Service, Driver | None], int]) -> int:
        return drive(self._session, begin, self._options, like_run=self._id)

    @property
    def _line(self) -> RunLine:
        with self._session.service() as service:
            return service.runs.summarize([self._id])[0]

    @property
    def _snapshot(self) -> tuple[RunSnapshot, StepsOfRun]:
        """The run as it is now. It is read again only if something has happened since."""
        with self._session.service() as service:
            if self._read is None or self._read[0].state.run.seq != service.runs.record(self._id).seq:
                found = service.runs.snapshot(self._id)
                self._read = found, StepsOfRun(self._session, found)
        return self._read

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Run):
            return NotImplemented
        return (self._id, self._session.folder) == (other._id, other._session.folder)

    def __hash__(self) -> int:
        return hash((self._id, self._session.folder))

    def _repr_html_(self) -> str | None:
        try:
            return run_html(self._session, self._id)
        except MulliganError:
            # The text says what is wrong.
            return None

    def __repr__(self) -> str:
        try:
            line, status = self._line, self.status
        except MulliganError as error:
            return f"<Run {self._id}: {error.message}>"
        why = f", {_describe_failure(line.failure)}" if line.failure is not None else ""
        waits = f", {line.waiting_for[0].text}" if line.waiting_for and status != "running" else ""
        return f"<Run {self._id} of {line.workflow!r}: {status} in {line.seconds:.1f}s{why}{waits}>"


def _describe_end(line: RunLine) -> str:
    """`run 7 failed: 'build' failed with EXIT_NONZERO 2`."""
    words = "was cancelled" if line.status == "cancelled" else line.status
    if line.failure is None:
        return f"run {line.run_id} {words}" + (f": {line.reason}" if line.reason else "")
    return f"run {line.run_id} {words}: {_describe_failure(line.failure)}"


def _describe_failure(failed: FailedStep) -> str:
    more = f" (and {failed.count - 1:,} more)" if failed.count > 1 else ""
    return f"'{failed.step}' failed with {failed.text}{more}"


def _describe_hold_up(run_id: int, wait: WaitReason) -> str:
    if wait.kind == "driver":
        return f"run {run_id} waits: {wait.text}; start a worker with: mulligan worker, or drive it here: run.resume()"
    return f"run {run_id} waits: {wait.text}; answer with run.approve, run.classify or run.resume"


def _check_items(items: Sequence[int] | None, step: str) -> None:
    """Refuse items that cannot be those of a map step."""
    if items is None:
        return
    if isinstance(items, str) or not all(isinstance(item, int) for item in items):
        hint = "give their numbers, from 0: items=[3, 17]; () stands for those that failed"
        raise InputInvalid(f"items must be numbers, not {items!r}", hint=hint)
    if not step:
        hint = "name it first: run.retry('clean', items=()) runs the failed items of 'clean' again"
        raise InputInvalid("items are those of a map step, and no step is named", hint=hint)


def _check_fork(from_step: str, at: int | None, *, keep_completed: bool, reason: str, has_flow: bool) -> None:
    """Refuse a fork that begins nowhere or twice, and what only one of the two kinds has."""
    if (at is None) is (from_step == ""):
        hint = "write run.fork('load'), or run.fork(at=40) with the `seq` of an event of run.events()"
        raise InputInvalid("a fork begins before a step or after an event: give one of them", hint=hint)
    if at is not None and keep_completed:
        raise InputInvalid("'keep_completed' is for a fork from a step: one at an event keeps all that is recorded")
    if reason and (at is None or has_flow):
        raise InputInvalid("'reason' is for a fork at an event that goes on with the same workflow")


def _budgets(given: Mapping[str, Any] | None) -> dict[str, Any]:
    from mulligan.service.authoring.values import read_budgets

    return read_budgets([f"{name}={value}" for name, value in (given or {}).items()])
