"""The changes of a run for faces that show what would follow: each with `dry_run`, each with the same kind of answer.

What would follow is decided by the core: the report is given to a copy of the state, and nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import msgspec

from mulligan.core.deciding.report_checks import check_report
from mulligan.core.deciding.rounds.kept_approvals import changed_inputs
from mulligan.core.effects.snapshot import changes
from mulligan.core.evolve.evolve_places import is_engine_action
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.workflow import Workflow
from mulligan.core.state.held_steps import is_on_hold
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.state.workspace import WORKER_FOLDER
from mulligan.core.turn import turn
from mulligan.engine.crash_answers import REPORT_IT
from mulligan.errors import (
    CodecError,
    InputInvalid,
    KeyMismatch,
    MulliganError,
    Refused,
    StepNotParked,
    StepNotWaitingForApproval,
    StoreUnavailable,
)
from mulligan.history.item_names import PlaceNames
from mulligan.history.story import story
from mulligan.language import check_inputs
from mulligan.language.expressions import Cel
from mulligan.service.decisions.decisions import Decision, follow_decision, record_decision
from mulligan.service.decisions.pending import find_approval
from mulligan.service.runs.changes.preflight import VERSION_LABEL
from mulligan.service.runs.changes.round_plans import ForkPlan, RoundOptions, RoundPlan
from mulligan.service.runs.changes.run_control import Prepared, RunControl, prepare
from mulligan.service.runs.changes.start_keys import is_notified_as
from mulligan.service.server.catalogue.texts import WorkflowText, read_text

# How much of an error is said.
MESSAGE_CHARS_MAX = 500
# How many sentences and attempts an answer has at most; a run may have ten thousand steps.
LINES_MAX = 200


class ChangeResult(msgspec.Struct, frozen=True):
    """What follows from a change of a run, or with `dry_run` would follow."""

    run_id: int
    dry_run: bool
    # Of the run, after the change. A run that is stopping is still running.
    status: str
    # What follows at once, in sentences.
    follows: list[str]
    # The attempts that could start, that are asked to stop, and that run on and may end: place and number.
    starts: list[str]
    stops: list[str]
    still_running: list[str]
    # How many more of each there are, if there are too many to list.
    left_out: int = 0


class StartedRun(msgspec.Struct, frozen=True):
    """A run that was started, or that an earlier request with the same key has started."""

    run_id: int
    workflow: str
    # Of the definition.
    version: str
    status: str
    is_new: bool


class RetryResult(RoundPlan, frozen=True, kw_only=True):
    """The round that was opened, or with `dry_run` would be."""

    dry_run: bool
    status: str


class ForkResult(ForkPlan, frozen=True, kw_only=True):
    """What the fork runs and keeps; and its number, once it is started."""

    dry_run: bool
    fork_run_id: int | None


class Given(NamedTuple):
    """What was given for a run of a published workflow, whichever version it is of."""

    inputs: Mapping[str, Any]
    labels: Mapping[str, str]


class DecidedStep(msgspec.Struct, frozen=True):
    """A decision about one parked step: recorded, previewed, or with an error refused."""

    decision: Decision
    by: str
    is_recorded: bool
    follows: list[str] = []
    starts: list[str] = []
    error: MulliganError | None = None


class DecisionsResult(msgspec.Struct, frozen=True):
    """What came of each decision, in the order in which they were given."""

    dry_run: bool
    decisions: list[DecidedStep]


class ChangeVerbs:
    """Changes of runs in the name of the user of a `Service`."""

    def __init__(self, control: RunControl) -> None:
        self._control = control
        self._reader = control.reader

    def start(self, prepared: Prepared, key: str = "", newest: Given | None = None) -> StartedRun:
        """Start a run that any worker may take; with a key the run that was started with it, if there is one.

        `KeyMismatch` if that one is of another workflow, or was asked for with something else. `newest`: what was
        given, if the newest version was asked for. Then it may be another one than when it was asked for first.
        """
        workflow, version = prepared.workflow.name, prepared.version
        if not key:
            (run_id,) = self._control.start(prepared)
            return StartedRun(run_id, workflow, version, "running", True)
        # Not a key of a schedule, whatever it is called.
        try:
            run_id, is_new = self._control.start_or_find(prepared, f"request: {key}", key)
        except KeyMismatch as other:
            if newest is None or not self._is_of_older_version(other.run_id, prepared, newest):
                raise
            run_id, is_new = other.run_id, False
        if is_new:
            return StartedRun(run_id, workflow, version, "running", True)
        record = self._reader.record(run_id)
        return StartedRun(run_id, workflow, record.version, _shown_status(record.status), False)

    def _is_of_older_version(self, run_id: int, prepared: Prepared, given: Given) -> bool:
        """Whether a run is what the same request gave when another version was the newest."""
        workflow, had = self._reader.first_workflow(run_id), self._reader.start_of(run_id)
        if had is None or workflow.name != prepared.workflow.name:
            return False
        # Those of either version, in place of which others may have been given.
        of_versions = {
            *workflow.labels.items(),
            *prepared.labels.items(),
            (VERSION_LABEL, had.labels.get(VERSION_LABEL)),
        }
        has_labels = all(had.labels.get(name) == value for name, value in given.labels.items())
        others = (one for one in had.labels.items() if one[0] not in given.labels)
        try:
            inputs = check_inputs(workflow, dict(given.inputs))
        except InputInvalid:
            return False
        is_same = not changed_inputs(had.inputs, inputs) and has_labels and all(one in of_versions for one in others)
        return is_same and is_notified_as(had.notify, prepared.notify, self._control.more_rules())

    def prepare_text(
        self,
        text: str,
        inputs: dict[str, Any],
        labels: Mapping[str, str],
        *,
        format: str | None = None,
    ) -> Prepared:
        """A run of a text that nobody has published. No other file is read for it, and it is no Python."""
        return prepare(self.read_text(text, format), inputs, Path(WORKER_FOLDER), labels=labels)

    @staticmethod
    def read_text(text: str, format: str | None = None) -> Workflow:
        """The workflow of a text that nobody has published, as `prepare_text` reads it."""
        return read_text(WorkflowText(text, "workflow.yaml", format)).workflow

    # -- cancel, pause, resume ---------------------------------------------------------------------------------------

    def cancel(self, run_id: int, *, now: bool = False, reason: str = "", dry_run: bool = False) -> ChangeResult:
        """Stop a run: cleanup, undo and `end` still run; with `now` only `end`."""
        self._control.refuse_second_cancel(run_id, now=now)
        report = r.CancelRequested(_now(), self._control.by, reason, now)
        try:
            found = preview_change(self._control, run_id, report)
        except CodecError as error:
            if not now:
                raise
            # Nobody knows what follows in a run that cannot be read. It ends all the same.
            found = ChangeResult(run_id, True, "cancelled", [f"the run ends at once: {error.message}"], [], [], [])
        return found if dry_run else self._sent(report, found)

    def pause(self, run_id: int, *, step: str = "", reason: str = "", dry_run: bool = False) -> ChangeResult:
        """Start nothing more until `resume`; with `step` nothing more of that step, or of all steps of that matrix."""
        report = r.PauseRequested(_now(), self._control.by, reason, step)
        if not step:
            self._control.refuse_pause(run_id)
        with self._control.unknown_step(run_id, step):
            return self._change(run_id, report, dry_run=dry_run)

    def resume(
        self, run_id: int, *, step: str = "", steps: int = 0, reason: str = "", dry_run: bool = False
    ) -> ChangeResult:
        """Let a paused run or step continue; with `steps`, let so many steps run and pause the run after them."""
        if not step:
            self._refuse_resume(run_id, steps)
        report = r.ResumeRequested(_now(), self._control.by, reason, step, steps)
        with self._control.unknown_step(run_id, step):
            return self._change(run_id, report, dry_run=dry_run)

    def _refuse_resume(self, run_id: int, steps: int) -> None:
        """Refuse to resume a run that is not paused: a worker continues it by itself."""
        record = self._reader.record(run_id)
        self._control.refuse_child(record, "resume")
        if record.status in ("new", "running") and not steps:
            is_driven = self._reader.driver_of(record) is not None
            hint = "a process drives it" if is_driven else "the next worker that is free continues it: mulligan worker"
            raise Refused(f"run {run_id} is not paused, so there is nothing to resume", hint=hint)

    def approve(
        self, run_id: int, step: str, *, is_approved: bool, reason: str = "", dry_run: bool = False
    ) -> ChangeResult:
        """Answer an approval that a step, or one command below it, waits for."""
        place = find_approval(self._reader, run_id, step)
        try:
            return self._change(
                run_id, r.ApprovalGiven(_now(), place, is_approved, self._control.by, reason), dry_run=dry_run
            )
        except StepNotWaitingForApproval:
            self._reader.refuse_unknown(run_id, place)
            raise

    def _change(self, run_id: int, report: r.Report, *, dry_run: bool) -> ChangeResult:
        found = preview_change(self._control, run_id, report)
        return found if dry_run else self._sent(report, found)

    def _sent(self, report: r.Report, found: ChangeResult) -> ChangeResult:
        self._control.send(found.run_id, report)
        status = self._reader.record(found.run_id).status
        return msgspec.structs.replace(found, dry_run=False, status=_shown_status(status))

    # -- retry and fork ----------------------------------------------------------------------------------------------

    def retry(
        self, run_id: int, *, reason: str = "", dry_run: bool = False, **chosen: Unpack[RoundOptions]
    ) -> RetryResult:
        """Open another round: what did not complete runs again, and what depends on it."""
        if dry_run:
            planned = self._control.plan_retry(run_id, **chosen)
            self._control.refuse_keeping(planned.approvals, is_changed=chosen.get("corrected") is not None)
        else:
            planned = self._control.retry(run_id, reason=reason, **chosen)
        status = self._reader.record(run_id).status
        return RetryResult(**msgspec.structs.asdict(planned), dry_run=dry_run, status=status)

    def fork(
        self,
        run_id: int,
        from_step: str,
        inputs: dict[str, Any],
        workflow: Workflow | None = None,
        *,
        keep_completed: bool = False,
        dry_run: bool = False,
    ) -> ForkResult:
        """Start a new run that keeps the results of another up to a step."""
        planned = self._control.plan_fork(run_id, from_step, inputs, workflow, keep_completed=keep_completed)
        self._control.refuse_keeping(planned.approvals)
        started = None
        if not dry_run:
            started = self._control.fork(run_id, from_step, inputs, workflow, keep_completed=keep_completed)
        return ForkResult(**msgspec.structs.asdict(planned), dry_run=dry_run, fork_run_id=started)

    def retry_step(
        self,
        run_id: int,
        step: str,
        *,
        round: int | None = None,
        max_attempts: int | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> ChangeResult | RetryResult:
        """Run one step again: a parked one in this round, a failed one of a run that has ended in another round.

        Refused if the step is unknown, if the run is not in `round` any more, if the step neither failed nor is parked,
        or if it has had `max_attempts` attempts already.
        """
        state = self._reader.state(run_id)
        self._reader.refuse_unknown(run_id, step)
        place = state.places.get(step)
        if round is not None and round != state.run.round:
            raise Refused(
                f"run {run_id} is in round {state.run.round}, not {round}: the step may have run again since",
                hint="look at the step, and name that round, or none",
                step=step,
                round=state.run.round,
            )
        if place is not None and max_attempts is not None and place.attempt >= max_attempts:
            raise Refused(
                f"'{step}' of run {run_id} has had {place.attempt} of {max_attempts} attempts",
                hint="allow more, or leave out the limit",
                step=step,
                attempts=place.attempt,
            )
        if place is not None and place.status == "pending_failed":
            report = r.Classified(_now(), step, "retry", self._control.by, reason)
            return self._change(run_id, report, dry_run=dry_run)
        if state.run.status in RUN_ENDED and place is not None and place.status == "failed":
            # The same decision as about a parked step.
            self._control.refuse_beyond_limits(r.Classified(_now(), step, "retry", self._control.by, reason))
            return self.retry(run_id, from_step=step, reason=reason, dry_run=dry_run)
        raise StepNotParked(
            f"'{step}' of run {run_id} is {place.status if place else 'waiting'}: it neither failed nor is it parked",
            hint=_what_else(run_id, state, step),
            step=step,
        )

    # -- decisions ---------------------------------------------------------------------------------------------------

    def decide(self, decided: Sequence[Decision], *, dry_run: bool = False) -> DecisionsResult:
        """Record decisions about parked steps, each by itself: one that is refused does not stop the others."""
        states: dict[int, State] = {}
        return DecisionsResult(dry_run, [self._decide(one, states, dry_run=dry_run) for one in decided])

    def _decide(self, one: Decision, states: dict[int, State], *, dry_run: bool) -> DecidedStep:
        """`states`: the runs as the decisions so far would leave them, in a dry run."""
        by = self._control.by
        try:
            state = states.get(one.run_id) or self._reader.state(one.run_id)
            preview = follow_decision(self._control, state, one)
            if dry_run:
                states[one.run_id] = state
            else:
                record_decision(self._control, one)
        except StoreUnavailable:
            raise
        except MulliganError as error:
            if self._control.ledger is not None and not dry_run:
                self._control.ledger.refuse(one.run_id, one.step, one.verdict, one.reason, error)
            return DecidedStep(one, by, False, error=error)
        return DecidedStep(one, by, not dry_run, preview.follows, preview.starts)


def preview_change(control: RunControl, run_id: int, report: r.Report) -> ChangeResult:
    """What would follow from a report. Writes nothing; raises what the core would raise."""
    control.refuse_beyond_limits(report)
    state, before, entries = try_report(control, run_id, report)
    lists = (
        _sentences(state, entries),
        [one for one in startable_attempts(state) if one not in before],
        [*_stopped(state, entries)],
        [*_running(state)],
    )
    follows, starts, stops, still_running = (one[:LINES_MAX] for one in lists)
    return ChangeResult(
        run_id=run_id,
        dry_run=True,
        status=_shown_status(state.run.status),
        follows=follows,
        starts=starts,
        stops=stops,
        still_running=still_running,
        left_out=sum(max(0, len(one) - LINES_MAX) for one in lists),
    )


def try_report(control: RunControl, run_id: int, report: r.Report) -> tuple[State, frozenset[str], list[e.Entry]]:
    """The state after a report, which attempts could have started before it, and what has followed.

    Raises what the core would raise if the run took up the report as it is now.
    """
    check_report(report)
    evaluator = Cel(os.environ, control.reader.store.artifacts.fetch)
    state = _current_state(control, run_id, evaluator)
    before = frozenset(startable_attempts(state))
    try:
        entries = turn(state, report, evaluator)
        changes(state)
    except MulliganError:
        raise
    except Exception as error:
        # The run would refuse it, after a while.
        said = f"{type(error).__name__}: {error}"[:MESSAGE_CHARS_MAX]
        raise InputInvalid(f"run {run_id} cannot process this: engine_error: {said}", hint=REPORT_IT) from error
    state.commit()
    return state, before, entries


def _current_state(control: RunControl, run_id: int, evaluator: Cel) -> State:
    """The state of a run. One that no worker has taken yet is started first, as its inbox asks."""
    state = control.reader.state(run_id)
    if state.run.status == "new":
        for message in control.reader.store.inbox([run_id]):
            if isinstance(message.report, r.RunRequested):
                turn(state, message.report, evaluator)
                state.commit()
    return state


def _sentences(state: State, entries: Iterable[e.Entry]) -> list[str]:
    names, lines = PlaceNames(), (line for line in story(entries, state.workflow) if not line.is_detail)
    return [f"{names.name(state, line.place)}: {line.text}" if line.place else line.text for line in lines]


def startable_attempts(state: State) -> Iterator[str]:
    """The attempts that a worker may take."""
    if state.run.status in ("running", "new"):
        names = PlaceNames()
        for place in state.places.values():
            if place.status == "ready" and not is_engine_action(place.spec) and not is_on_hold(state, place):
                yield f"{names.name(state, place.key)}: attempt {place.attempt}"


def _stopped(state: State, entries: Iterable[e.Entry]) -> Iterator[str]:
    """The attempts that are asked to end, or end at once since they have not begun."""
    names = PlaceNames()
    for fact in (entry.fact for entry in entries):
        if isinstance(fact, e.AttemptStopping | e.AttemptCancelled):
            yield f"{names.name(state, fact.place)}: attempt {fact.attempt}"


def _running(state: State) -> Iterator[str]:
    names = PlaceNames()
    for place in state.places.values():
        is_own = place.status == "running" and not place.child and not place.phase
        if is_own and not is_engine_action(place.spec):
            yield f"{names.name(state, place.key)}: attempt {place.attempt}"


def _what_else(run_id: int, state: State, step: str) -> str:
    """What can be done with a step that cannot be retried."""
    if state.run.status in RUN_ENDED:
        return f"to run it again with the steps after it: fork run {run_id} from '{step}'"
    return "retry it when it has failed and the run has ended, or when it is parked"


def _shown_status(status: str) -> str:
    """A new run counts as running, also before a worker has taken it."""
    return "running" if status == "new" else status


def _now() -> datetime:
    return datetime.now(UTC)
