"""Starting runs and changing them.

A change is a report in the inbox of the run. The process that drives the run answers it; if no process does, this one
takes the run's turn until it has answered. So the core refuses a senseless change at once, wherever the run is.
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Unpack

import msgspec

from mulligan.core.deciding.admit import rerun_hint
from mulligan.core.deciding.report_checks import check_report
from mulligan.core.deciding.rounds.fork import Fork, kept_data, kept_sessions, plan_fork
from mulligan.core.deciding.workers.resource_usage import peak_memory_by_step
from mulligan.core.evolve.evolve_places import is_engine_action
from mulligan.core.model import reports as r
from mulligan.core.model.agents.guard_rails import refuse_beyond, refuse_keeping
from mulligan.core.model.event_types import HostCapacity, Kept
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Budget, NoticeRule, Workflow, encode, version
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.engine.driven_runs import RunAbandoned
from mulligan.engine.observers import Observer
from mulligan.errors import (
    CodecError,
    InputInvalid,
    KeyUsed,
    MulliganError,
    Refused,
    RunDriven,
    RunFinished,
    RunNotFinished,
    StepNotWaitingForApproval,
    StoreUnavailable,
    UnknownStep,
    error_by_code,
)
from mulligan.language import check_inputs, check_recorded_inputs, refuse_references
from mulligan.language.expressions import Cel
from mulligan.language.readers.workspace_steps import keep_workspace
from mulligan.language.text.suggestions import did_you_mean
from mulligan.ports import Answer, Executor, NewRun, RunRecord, TokenLimits, WorkerRecord
from mulligan.service.driving.driver import Capacity, Driver
from mulligan.service.driving.local_worker import local_worker
from mulligan.service.driving.locks import Locks
from mulligan.service.runs.changes.capacity_checks import refuse_no_processors, refuse_too_large, refuse_without_dask
from mulligan.service.runs.changes.child_retries import refuse_retry_of_child, request_from_top
from mulligan.service.runs.changes.corrections import CorrectedWorkflow, describe_revision, digest_of, plan_next_round
from mulligan.service.runs.changes.preflight import (
    check_labels,
    refuse_missing_files,
    refuse_missing_secrets,
    stale_of_round,
    stale_results,
)
from mulligan.service.runs.changes.round_plans import ForkPlan, RoundOptions, RoundPlan, fork_plan, in_tree, round_plan
from mulligan.service.runs.changes.run_worktrees import pin_origin, refuse_missing_worktree, refuse_shared_worktree
from mulligan.service.runs.changes.script_guard import refuse_start_while_loading
from mulligan.service.runs.changes.start_keys import refuse_other_request
from mulligan.service.runs.stored.run_reader import RunReader

if TYPE_CHECKING:
    from mulligan.service.server.tokens.decision_ledger import DecisionLedger

# Of an identifier that no other run has, in any store.
UID_BYTES = 6
# Of the name that is recorded with a change.
NAME_CHARS_MAX = 100
# How long to wait for an answer of the process that drives the run, and how often to look for it.
ANSWER_SECONDS, LOOK_SECONDS = 10.0, 0.01
# How long to drive a run that nobody drives until it answers: tasks of its last round may have their grace.
OWN_TURN_SECONDS = 60.0


class Prepared(msgspec.Struct, frozen=True):
    """A workflow and its inputs, checked: ready to be started."""

    workflow: Workflow
    data: bytes
    version: str
    inputs: dict[str, Any]
    cwd: Path
    # The file that the workflow was read from; "" if there is none.
    file: str = ""
    # Whether unchanged steps take over the results of earlier runs, and which steps never do.
    changed_only: bool = False
    forced: tuple[str, ...] = ()
    # To find the run in lists.
    labels: dict[str, str] = {}
    # What the processes that drive the run have in place of what their machine has.
    capacity: HostCapacity | None = None
    # Who is notified about the run, besides those that the workflow names.
    notify: tuple[NoticeRule, ...] = ()


def prepare(
    workflow: Workflow,
    given: dict[str, Any],
    cwd: Path,
    file: str = "",
    labels: Mapping[str, str] = MappingProxyType({}),
    *,
    changed_only: bool = False,
    forced: Sequence[str] = (),
    capacity: HostCapacity | None = None,
    has_files: bool = True,
    notify: Sequence[NoticeRule] = (),
) -> Prepared:
    """Check everything that can be checked before a run exists: inputs, labels, files that must be there.

    `changed_only`: steps that are up to date take over the results of earlier runs, except those in `forced`.
    `has_files`: the steps find the files of this host.
    """
    refuse_start_while_loading(workflow)
    inputs = check_inputs(workflow, given)
    refuse_references(inputs)
    if has_files:
        refuse_missing_files(workflow, cwd)
    prepared = _prepared(workflow, inputs, cwd, file, check_labels({**workflow.labels, **labels}))
    steps = {name: None for step in workflow.steps for name in (step.name, step.sweep) if name}
    for name in forced:
        if name not in steps:
            message = f"'{name}' is not a step of '{workflow.name}'"
            raise UnknownStep(message, hint=did_you_mean(name, steps), step=name)
    return msgspec.structs.replace(
        prepared,
        changed_only=changed_only,
        forced=tuple(dict.fromkeys(forced)),
        capacity=capacity,
        notify=tuple(notify),
    )


def _prepared(
    workflow: Workflow, inputs: dict[str, Any], cwd: Path, file: str = "", labels: dict[str, str] | None = None
) -> Prepared:
    if workflow.schedules:
        # Another time of starting is not another workflow.
        workflow = msgspec.structs.replace(workflow, schedules={})
    data = encode(workflow)
    return Prepared(workflow, data, version(data), inputs, cwd, file, labels=labels or {})


class _ExecutorPlace:
    """What an executor can ever run."""

    def __init__(self, executor: Executor) -> None:
        self.can_ever = executor.can_ever_fit
        self.lacking = executor.missing_resources


class RunControl:
    """Starts and changes runs in the name of `by`, the user by default."""

    def __init__(
        self,
        reader: RunReader,
        by: str = "",
        more_rules: Callable[[], tuple[NoticeRule, ...]] = lambda: (),
        limits: TokenLimits | None = None,
        ledger: DecisionLedger | None = None,
        *,
        may_decide: bool = True,
    ) -> None:
        self.reader = reader
        self._may_decide = may_decide
        self._limits = limits or TokenLimits()
        # Where decisions that were refused among others are written down; those that are made are, by the store.
        self.ledger = ledger
        # The notice rules of a new run besides its own.
        self.more_rules = more_rules
        self.by = _name(by or os.environ.get("MULLIGAN_BY", "")) or _user()

    def driver(
        self,
        capacity: Capacity | None,
        watcher: Observer | None = None,
        lease_seconds: float | None = None,
        *,
        serves: bool = False,
    ) -> Driver:
        """A worker in this process, alive while its context lasts. Without capacity or processors it runs no tasks."""
        if capacity is not None:
            refuse_no_processors(capacity, is_shared=bool(self.reader.home.store_url))
        seconds = self.reader.home.lease_seconds if lease_seconds is None else lease_seconds
        return local_worker(
            self.reader.home, self.reader.store, capacity, observer=watcher, lease_seconds=seconds, serves=serves
        )

    # -- starting ----------------------------------------------------------------------------------------------------

    def start(
        self,
        prepared: Prepared,
        driver: Driver | None = None,
        *,
        times: int = 1,
        kept: Sequence[Kept] = (),
        key: str = "",
    ) -> list[int]:
        """Create runs (usually one), all or none. A driver owns them at once; without one, any worker may take them.

        `kept`: results that steps are taken to have already. `key`: raises `KeyUsed` if a run of this workflow was
        started with it, also when several processes start at once.
        """
        if driver is not None and not self.reader.store.is_shared:
            cluster = prepared.capacity.on if prepared.capacity is not None else ""
            if not cluster:
                # The workers of a cluster look secrets up where they are.
                refuse_missing_secrets(prepared.workflow, prepared.cwd, os.environ)
                refuse_without_dask(prepared.workflow)
            driver.engine.workflows.note_definition(prepared.workflow)
            if driver.executor is not None:
                refuse_too_large(prepared.workflow, _ExecutorPlace(driver.executor), cluster)
        request = r.RunRequested(_now(), 0, prepared.inputs, prepared.version, by=self.by, kept=tuple(kept))
        prepared = self._with_more_rules(prepared)
        new = [self._new(prepared, request) for _ in range(times)]
        if key:
            new = [msgspec.structs.replace(one, key=f"{prepared.workflow.name}: {key}") for one in new]
        return self._create(new, prepared.workflow, driver)

    def start_once(self, prepared: Prepared, key: str) -> int:
        """The run with this key: a new one, unless there is one already.

        For callers that ask again because no answer came: the run is neither lost nor started twice. `KeyMismatch` if
        it is a run of another workflow or with other inputs: then its result is not the one that is asked for.
        """
        return self.start_or_find(prepared, key)[0]

    def start_or_find(self, prepared: Prepared, key: str, shown: str = "") -> tuple[int, bool]:
        """The run with this key, and whether it is new. As `start_once`. `shown`: the key as messages name it."""
        request = r.RunRequested(_now(), 0, prepared.inputs, prepared.version, by=self.by)
        new = msgspec.structs.replace(self._new(self._with_more_rules(prepared), request), key=key)
        try:
            (run_id,) = self._create([new], prepared.workflow, None)
        except KeyUsed as used:
            refuse_other_request(
                self.reader,
                used.run_id,
                prepared,
                shown or key,
                same_version=True,
                more_rules=self.more_rules(),
            )
            return used.run_id, False
        return run_id, True

    def _with_more_rules(self, prepared: Prepared) -> Prepared:
        return msgspec.structs.replace(prepared, notify=self.rules_with(prepared.notify))

    def rules_with(self, rules: Sequence[NoticeRule]) -> tuple[NoticeRule, ...]:
        """These rules for notices of a new run, and those for all runs."""
        return tuple(dict.fromkeys((*rules, *self.more_rules())))

    def _new(self, prepared: Prepared, request: r.RunRequested) -> NewRun:
        uid = os.urandom(UID_BYTES).hex()
        named = msgspec.structs.replace(
            request,
            uid=uid,
            # A server does it for a fork over HTTP.
            worktree=request.worktree if self.reader.home.is_remote else pin_origin(request.worktree, uid),
            cwd=str(prepared.cwd),
            file=prepared.file,
            digest=digest_of(prepared.file),
            changed_only=prepared.changed_only,
            forced=prepared.forced,
            labels=prepared.labels,
            capacity=prepared.capacity,
            notify=prepared.notify,
        )
        return NewRun(prepared.data, prepared.version, prepared.workflow.name, named)

    def _create(self, runs: Sequence[NewRun], workflow: Workflow, driver: Driver | None) -> list[int]:
        if driver is None:
            # A driver has done so when it was set up.
            self.reader.keep_lost_numbers()
        # By the clock of the store, whatever this machine says. A server sets it for those who come over HTTP.
        now = None if self.reader.home.is_remote else self.reader.store.now()
        if now is not None:
            stamped = (msgspec.structs.replace(run.request, at=now) for run in runs)
            runs = [msgspec.structs.replace(run, request=one) for run, one in zip(runs, stamped, strict=True)]
        turns = self.reader.store.create(runs, driver.name if driver else "")
        if driver is not None:
            driver.engine.workflows.remember(runs[0].workflow, workflow)
            driver.engine.begin(turns, runs)
        return [turn.run_id for turn in turns]

    def create_fork(self, prepared: Prepared, request: r.RunRequested, driver: Driver | None) -> int:
        """Create a run that continues another one: see `fork_at`."""
        return self._create([self._new(self._with_more_rules(prepared), request)], prepared.workflow, driver)[0]

    def fork(
        self,
        run_id: int,
        from_step: str,
        given: dict[str, Any],
        workflow: Workflow | None = None,
        driver: Driver | None = None,
        *,
        file: str = "",
        then: State | None = None,
        seq: int = 0,
        keep_completed: bool = False,
    ) -> int:
        """Start a run that keeps the results of another up to a step, with other inputs or a corrected workflow.

        `then`: the other run as it was at its event `seq`; by default as it is now. `keep_completed`: completed steps
        are kept although another step than `from_step` runs that they depend on.
        """
        old, prepared, planned = self._planned_fork(
            run_id, from_step, given, workflow, then, keep_completed=keep_completed
        )
        # The named step runs again, and so do steps whose files are gone or have changed.
        again = filter(None, (from_step, *(one.step for one in planned.stale)))
        capacity = self.reader.capacity(run_id)
        prepared = msgspec.structs.replace(
            prepared, file=file, forced=tuple(dict.fromkeys(again)), capacity=capacity, notify=old.run.notify
        )
        request = r.RunRequested(
            _now(),
            0,
            prepared.inputs,
            prepared.version,
            by=self.by,
            forked_from=run_id,
            forked_at=seq,
            kept=planned.kept,
            stale=planned.stale,
            data=kept_data(old, planned.kept),
            sessions=kept_sessions(old, planned.kept),
            worktree=planned.worktree,
        )
        return self._create([self._new(self._with_more_rules(prepared), request)], prepared.workflow, driver)[0]

    def plan_fork(
        self,
        run_id: int,
        from_step: str,
        given: dict[str, Any],
        workflow: Workflow | None = None,
        then: State | None = None,
        *,
        keep_completed: bool = False,
    ) -> ForkPlan:
        """What `fork` would run and keep; raises what `fork` would raise. Changes nothing."""
        old, prepared, planned = self._planned_fork(
            run_id, from_step, given, workflow, then, keep_completed=keep_completed
        )
        return fork_plan(old, prepared.workflow, from_step, planned)

    def _planned_fork(
        self,
        run_id: int,
        from_step: str,
        given: dict[str, Any],
        workflow: Workflow | None,
        then: State | None = None,
        *,
        keep_completed: bool,
    ) -> tuple[State, Prepared, Fork]:
        """The state of the old run, the new run, and the results that it keeps."""
        old = then or self.reader.state(run_id)
        is_moving = then is None and old.run.status not in RUN_ENDED and old.run.status != "paused"
        if is_moving and self.reader.driver_of(self.reader.store.run(run_id)) is not None:
            raise Refused(
                f"run {run_id} is {old.run.status} and cannot be forked while it is driven",
                hint=f"pause it first: mulligan pause {run_id}",
            )
        if not old.places:
            raise RunNotFinished(f"run {run_id} has not started yet, so it has no results to keep")
        self.refuse_callers_worktree(run_id, old)
        chosen = keep_workspace(workflow, old.workflow) if workflow else old.workflow
        kept_inputs = {name: value for name, value in old.run.inputs.items() if name in chosen.inputs}
        # An input of a child run may be an artifact.
        evaluator = Cel(os.environ, self.reader.store.artifacts.fetch)
        inputs = check_recorded_inputs(chosen, {**kept_inputs, **given}, evaluator)
        refuse_references({name: inputs[name] for name in given})
        if not self.reader.home.is_remote:
            refuse_missing_files(chosen, Path(old.run.cwd))
        prepared = _prepared(chosen, inputs, Path(old.run.cwd), labels=self.reader.labels(run_id))
        with _meaning(step.name for step in chosen.steps):
            stale = stale_results(self.reader.home, old, old.graph.nodes)
            planned = plan_fork(old, Graph(chosen), from_step, stale, inputs=inputs, keep_completed=keep_completed)
        if planned.worktree is not None:
            self.refuse_moving_worktree(run_id)
            refuse_missing_worktree(old)
        refuse_shared_worktree(run_id, ((one.step, one.output) for one in planned.kept))
        return old, prepared, planned

    def refuse_moving_worktree(self, run_id: int) -> None:
        """Refuse to fork a run while commands may change the files that its fork would copy; also of a child run.

        A child run works in the worktree of the run that called it, which only a fork of that one copies.
        """
        record = self.reader.record(run_id)
        is_driven = record.status not in RUN_ENDED and self.reader.driver_of(record) is not None
        if is_driven and (record.status != "paused" or self._commands_running(run_id)):
            wait = f"wait until its commands have ended: mulligan show {run_id}"
            raise Refused(
                f"run {run_id} is {record.status} and works in its worktree, which a fork copies",
                hint=wait if record.status == "paused" else f"pause it first: mulligan pause {run_id}; then {wait}",
            )

    def refuse_callers_worktree(self, run_id: int, old: State) -> None:
        """Refuse to fork a child run that works in the worktree of its caller: two runs would work in one."""
        record = self.reader.record(run_id)
        if record.parent_run_id is None:
            return
        caller = self.reader.state(record.parent_run_id)
        if caller.run.workspace and Path(old.run.cwd).is_relative_to(caller.run.workspace):
            raise Refused(
                f"run {run_id} works in the worktree of run {record.parent_run_id}, which called it",
                hint=f"fork that one: mulligan fork {record.parent_run_id} --from STEP",
            )
        self.refuse_callers_worktree(record.parent_run_id, old)

    # -- changing runs -----------------------------------------------------------------------------------------------

    def cancel(self, run_id: int, *, now: bool = False, reason: str = "") -> None:
        """Stop the run: running commands get their grace, cleanup and undo run, then `end`; with `now` only `end`."""
        self.refuse_second_cancel(run_id, now=now)
        self.send(run_id, r.CancelRequested(_now(), self.by, reason, now))

    def refuse_second_cancel(self, run_id: int, *, now: bool) -> None:
        """Refuse a cancel that changes nothing. If nothing is running the run, another cancel lets this one end it."""
        if self.reader.record(run_id).status in RUN_ENDED or not self.reader.is_driven(run_id):
            # The state of a large run takes a while to read, and the core refuses what is left to refuse.
            return
        stop = self.reader.lazy_state(run_id).run.stop
        if stop is not None and stop.cause == "cancelled" and (stop.now or not now):
            hint = "" if now else f"to skip cleanup and undo: mulligan cancel {run_id} --now"
            raise Refused(f"run {run_id} is already being cancelled", hint=hint)

    def pause(self, run_id: int, reason: str = "") -> int:
        """Start nothing more until `resume`. Return how many commands still run."""
        self.refuse_pause(run_id)
        self.send(run_id, r.PauseRequested(_now(), self.by, reason))
        return self._commands_running(run_id)

    def refuse_pause(self, run_id: int) -> None:
        """Refuse to pause a child run, or a run that is paused already."""
        record = self.reader.record(run_id)
        self.refuse_child(record, "pause")
        if record.status == "paused":
            hint = f"to continue it: mulligan resume {run_id}"
            raise Refused(f"run {run_id} is already paused", hint=hint)

    def pause_step(self, run_id: int, step: str, reason: str = "") -> list[str]:
        """Hold a step, or all steps of a matrix: running attempts may end, none starts. Return what still runs."""
        self.reader.record(run_id)
        with self.unknown_step(run_id, step):
            self.send(run_id, r.PauseRequested(_now(), self.by, reason, step))
        state = self.reader.lazy_state(run_id)
        held = [state.places[name] for name in state.run.paused_steps if _is_named(state, name, step)]
        return [place.key for place in held if place.is_active and place.status != "ready"]

    def resume_step(self, run_id: int, step: str, reason: str = "") -> None:
        """Let a paused step continue."""
        self.reader.record(run_id)
        with self.unknown_step(run_id, step):
            self.send(run_id, r.ResumeRequested(_now(), self.by, reason, step))

    @contextmanager
    def unknown_step(self, run_id: int, step: str) -> Iterator[None]:
        """Add to the core's refusal of a step the name that was probably meant."""
        try:
            yield
        except UnknownStep as error:
            state = self.reader.lazy_state(run_id)
            known = (*state.graph.nodes, *(one.sweep for one in state.workflow.steps if one.sweep))
            error.hint = did_you_mean(step, known) or f"list its steps: mulligan show {run_id}"
            raise

    def _commands_running(self, run_id: int) -> int:
        """How many commands of the run, and of the runs that it called, are running."""
        children = (child for child in self.reader.store.children(run_id) if child.status not in RUN_ENDED)
        return _commands_running(self.reader.state(run_id)) + sum(
            self._commands_running(child.run_id) for child in children
        )

    def retry(self, run_id: int, *, reason: str = "", **chosen: Unpack[RoundOptions]) -> RoundPlan:
        """Open the next round: what did not complete runs again, and what depends on it. Return what it runs.

        The round of a child run is part of a round of the run at the top.
        """
        report, planned = self._planned_round(run_id, reason, **chosen)
        self.send(planned.root_run_id or run_id, report)
        return planned

    def plan_retry(self, run_id: int, **chosen: Unpack[RoundOptions]) -> RoundPlan:
        """What `retry` would run again; raises what `retry` would raise. Changes nothing."""
        return self._planned_round(run_id, "", **chosen)[1]

    def _planned_round(
        self,
        run_id: int,
        reason: str,
        *,
        from_step: str = "",
        items: Sequence[int] | None = None,
        adjust: bool = False,
        corrected: CorrectedWorkflow | None = None,
        budgets: Mapping[str, Budget] | None = None,
        keep_completed: bool = False,
        from_start: bool = False,
        force: bool = False,
    ) -> tuple[r.RetryRequested, RoundPlan]:
        record = self.reader.record(run_id)
        is_child = record.parent_run_id is not None
        if is_child:
            refuse_retry_of_child(self.reader, record, has_file=corrected is not None)
        state = self.reader.state(run_id)
        if not state.places:
            raise RunNotFinished(f"run {run_id} has not started yet, so there is nothing to retry")
        refuse_missing_worktree(state)
        revised = None
        if corrected is not None:
            revised = describe_revision(self.reader, state, corrected, keep_completed=keep_completed)
        report = r.RetryRequested(
            _now(),
            self.by,
            reason,
            from_step,
            None if items is None else tuple(items),
            adjust,
            peak_memory_by_step(self.reader.events(run_id)) if adjust else {},
            revised,
            stale_of_round(
                self.reader.home,
                state,
                from_step,
                has_items=items is not None,
                keep_completed=keep_completed,
            ),
            dict(budgets or {}),
            keep_completed=keep_completed,
            from_start=from_start and not is_child,
            force=force,
        )
        steps = (step.name for step in (corrected.workflow if corrected else state.workflow).steps)
        with _meaning(steps):
            planned = round_plan(plan_next_round(state, report), report)
        if not is_child:
            return report, planned
        asked = msgspec.structs.replace(report, from_start=from_start)
        return request_from_top(self.reader, record, asked), in_tree(planned, record.root_run_id, from_start=from_start)

    def classify(
        self,
        run_id: int,
        step: str,
        verdict: Literal["retry", "fail"],
        reason: str,
        *,
        memory: int | None = None,
        timeout: float | None = None,
        budgets: Mapping[str, Budget] | None = None,
        attempt: int | None = None,
        confidence: float | None = None,
    ) -> None:
        """Decide about a parked step: about this attempt, or whichever is parked. `budgets`: as for `retry`."""
        report = r.Classified(
            at=_now(),
            step=step,
            verdict=verdict,
            by=self.by,
            reason=reason,
            memory=memory,
            timeout=timeout,
            budgets=dict(budgets or {}),
            attempt=attempt,
            confidence=confidence,
        )
        try:
            self.send(run_id, report)
        except UnknownStep:
            self.reader.refuse_unknown(run_id, step)
            raise

    def approve(self, run_id: int, place: str, is_approved: bool, reason: str) -> None:
        """Answer an approval that a run waits for."""
        place = self.reader.find_place(run_id, place)
        try:
            self.send(run_id, r.ApprovalGiven(_now(), place, is_approved, self.by, reason))
        except StepNotWaitingForApproval:
            self.reader.refuse_unknown(run_id, place)
            raise

    def lift_pause(self, run_id: int, reason: str = "", steps: int = 0) -> None:
        """Let a paused run continue; with `steps`, also one that is not paused, until so many steps have run."""
        self.send(run_id, r.ResumeRequested(_now(), self.by, reason, steps=steps))

    def refuse_beyond_limits(self, report: r.Report) -> None:
        """Refuse what the guard rails of the token do not allow. The store does so too; this is for trials."""
        refuse_beyond(report, self._limits.verdicts, self._limits.min_confidence)

    def refuse_keeping(self, approvals: Iterable[str], *, is_changed: bool = True) -> None:
        """Refuse to keep approvals beyond the guard rails and the scopes of the token; as `refuse_beyond_limits`.

        In a round of the run as it is, they were given for what runs, so that they bind tokens with guard rails alone.
        """
        if is_changed or self._limits.verdicts:
            for name in approvals:
                refuse_keeping(name, self._limits.verdicts, may_decide=self._may_decide)

    def send(self, run_id: int, report: r.Report) -> None:
        """Put a report into the run's inbox, wait for the answer, and raise if it was refused."""
        self.reader.record(run_id)
        _, answer = self.ask(run_id, report)
        if answer.error:
            raise error_by_code(answer.error)(answer.message, hint=answer.hint)

    def ask(self, run_id: int, report: r.Report) -> tuple[int, Answer]:
        """Put a report into the run's inbox and wait for the answer. The id of the message, and the answer."""
        check_report(report)
        try:
            message_id = self.reader.store.put(run_id, report, is_asking=True)
        except UnicodeEncodeError:
            # A terminal may pass bytes that are not text.
            raise InputInvalid("the text is not valid UTF-8, so it cannot be stored") from None
        try:
            return message_id, self._answer(run_id, message_id)
        except (CodecError, RunAbandoned):
            if not (isinstance(report, r.CancelRequested) and report.now) or self.reader.home.is_remote:
                raise
            if self.reader.store.run(run_id).status in RUN_ENDED:
                raise
            # Nothing of it can be processed. Its row says that it has ended, whatever its log says.
            with self.driver(None) as driver:
                driver.end_unreadable(run_id, report)
            return message_id, Answer()

    def _answer(self, run_id: int, message_id: int) -> Answer:
        found: list[Answer] = []

        def is_answered() -> bool:
            answer = None if found else self.reader.store.answer(message_id)
            if answer is not None:
                found.append(answer)
            return bool(found)

        begun = time.monotonic()
        own_deadline = begun + OWN_TURN_SECONDS
        while not is_answered():
            driver, waited = self.reader.driver_of(self.reader.store.run(run_id)), time.monotonic() - begun
            if waited > (ANSWER_SECONDS if driver is not None else OWN_TURN_SECONDS):
                raise _unanswered(run_id, driver)
            if driver is None:
                self._take_its_turn(run_id, lambda: is_answered() or time.monotonic() > own_deadline)
            else:
                time.sleep(LOOK_SECONDS)
        return found[0]

    def _take_its_turn(self, run_id: int, until: Callable[[], bool]) -> None:
        """Drive the run without running tasks, until it has answered or another process drives it."""
        self._refuse_unknown_holder(run_id)
        with self.driver(None) as driver:
            driver.turn(
                run_id, lambda: until() or (run_id not in driver.engine.drivers and self.reader.is_driven(run_id))
            )

    # -- taking up runs ----------------------------------------------------------------------------------------------

    def resumable(self, run_id: int | None = None) -> int:
        """The run that `resume` would drive: this one, or the newest that nothing is running."""
        if run_id is not None:
            self._refuse_resume(self.reader.record(run_id))
            return run_id
        unfinished = [
            one for one in self.reader.runs(statuses=("new", "running", "paused")) if one.parent_run_id is None
        ]
        idle = [record.run_id for record in unfinished if self.reader.driver_of(record) is None]
        if not idle:
            where = "" if self.reader.home.is_there else f" in '{self.reader.home.folder}'"
            why = "every unfinished run is driven by a process" if unfinished else "no run is unfinished"
            hint = "" if unfinished else "to run the failed steps of a run again: mulligan retry RUN"
            raise Refused(f"there is no run to resume{where}: {why}", hint=hint)
        # Prefer a run that can continue by itself to one that waits for a person.
        asking = {waiting.run_id for waiting in self.reader.store.waiting_places()}
        return next((found for found in idle if found not in asking), idle[0])

    def refuse_child(self, record: RunRecord, verb: str) -> None:
        """Refuse a child run: the step that called it controls it."""
        if record.parent_run_id is not None:
            raise Refused(
                f"run {record.run_id} is a child of run {record.parent_run_id}",
                hint=f"{verb} that one: mulligan {verb} {record.root_run_id}",
            )

    def _refuse_resume(self, record: RunRecord) -> None:
        if record.status in RUN_ENDED:
            raise RunFinished(
                f"run {record.run_id} {record.status}, so there is nothing to resume",
                hint=rerun_hint(record.run_id, record.status),
            )
        self.refuse_child(record, "resume")
        self._refuse_unknown_holder(record.run_id)
        driver = self.reader.driver_of(record)
        if driver is not None and record.status != "paused":
            raise RunDriven(
                f"run {record.run_id} is driven by process {driver.pid} on {driver.host}",
                hint=self._where_it_goes_on(record.run_id, driver),
            )

    def _where_it_goes_on(self, run_id: int, driver: WorkerRecord) -> str:
        """A hint about a run that another process drives. In a copy of its home a cancel would reach no process."""
        original = Locks(self.reader.home, is_shared=self.reader.store.is_shared).original_home(driver)
        if original:
            return f"this folder is a copy; the run continues in '{original}': use --home with that one, or wait"
        return f"it continues there; to stop it: mulligan cancel {run_id}"

    def _refuse_unknown_holder(self, run_id: int) -> None:
        """Refuse a run whose holder is not a worker: a turn ends with its worker, so no other would ever get it."""
        holder = self.reader.store.run(run_id).holder
        if not holder or any(worker.name == holder for worker in self.reader.store.workers()):
            return
        # Read again: a worker that was removed in between has given up its turns.
        if self.reader.store.run(run_id).holder == holder:
            raise CodecError(
                f"run {run_id} is held by '{holder}', which is not a worker of this store",
                hint="the store was changed by hand or is damaged: restore it from a copy",
            )


def _is_named(state: State, name: str, named: str) -> bool:
    """Whether `named` is the name of the step or of its matrix."""
    return named in (name, state.step(name).sweep)


def _commands_running(state: State) -> int:
    places = (place for place in state.places.values() if place.status == "running" and not place.child)
    return sum(not is_engine_action(place.spec) for place in places)


@contextmanager
def _meaning(known: Iterable[str]) -> Iterator[None]:
    """Add to the refusal of an unknown step the name that was probably meant."""
    try:
        yield
    except UnknownStep as error:
        step = str(error.data["step"])
        raise UnknownStep(error.message, hint=error.hint or did_you_mean(step, known), step=step) from None


def _unanswered(run_id: int, driver: WorkerRecord | None) -> MulliganError:
    if driver is None:
        return StoreUnavailable(
            f"run {run_id} has not answered",
            hint="the request is recorded; the run answers when its running tasks have ended",
        )
    return StoreUnavailable(
        f"process {driver.pid} on {driver.host} drives run {run_id} and has not answered",
        hint="the request is recorded; that process may be stopped, and answers when it continues",
    )


def _now() -> datetime:
    return datetime.now(UTC)


def _name(said: str) -> str:
    """A name as it is recorded: a few words in one line."""
    name = said.strip()
    if len(name) > NAME_CHARS_MAX or not name.isprintable():
        shown = " ".join(name.split())[:NAME_CHARS_MAX]
        raise InputInvalid(f"'{shown}' is not a name", hint=f"one line of at most {NAME_CHARS_MAX} characters")
    return name


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        # This user id has no name, which is common in containers.
        return "somebody"
