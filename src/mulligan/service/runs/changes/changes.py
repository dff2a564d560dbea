"""Starting runs and changing them: every verb once, each with `dry_run`.

A change is a report in the inbox of the run. To who does not drive runs himself the answer says what follows: that is
decided by the core too, on a copy of the state, before the report is sent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec

from mulligan.core.deciding.rounds.fork import Fork, kept_data, kept_sessions, plan_fork
from mulligan.core.deciding.workers.resource_usage import peak_memory_by_step
from mulligan.core.model import reports as r
from mulligan.core.model.agents.guard_rails import refuse_beyond, refuse_keeping
from mulligan.core.model.event_types import Kept
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Budget, NoticeRule, Workflow
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import (
    CodecError,
    InputInvalid,
    KeyMismatch,
    KeyUsed,
    MulliganError,
    Refused,
    RunNotFinished,
    StepNotParked,
    StepNotWaitingForApproval,
    StoreUnavailable,
    UnknownStep,
    error_by_code,
)
from mulligan.language.expressions import Cel
from mulligan.language.input_values import check_recorded_inputs, refuse_references
from mulligan.language.readers.workspace_steps import keep_workspace
from mulligan.language.text.suggestions import did_you_mean
from mulligan.ports import NewRun, TokenLimits
from mulligan.service.driving.driver import Driver
from mulligan.service.runs.changes.answers import (
    ChangeResult,
    Given,
    StartedRun,
    shown_status,
)
from mulligan.service.runs.changes.capacity_checks import refuse_too_large, refuse_without_dask
from mulligan.service.runs.changes.child_retries import refuse_retry_of_child, request_from_top
from mulligan.service.runs.changes.corrections import CorrectedWorkflow, describe_revision, digest_of, plan_next_round
from mulligan.service.runs.changes.preflight import (
    refuse_missing_files,
    refuse_missing_secrets,
    stale_of_round,
    stale_results,
)
from mulligan.service.runs.changes.prepared_runs import Prepared, prepare_checked
from mulligan.service.runs.changes.round_plans import (
    ForkResult,
    RetryResult,
    RoundOptions,
    fork_plan,
    in_tree,
    round_plan,
)
from mulligan.service.runs.changes.run_inbox import ask, refuse_child, refuse_to_take_up
from mulligan.service.runs.changes.run_worktrees import (
    pin_origin,
    refuse_callers_worktree,
    refuse_missing_worktree,
    refuse_moving_worktree,
    refuse_shared_worktree,
    running_commands,
)
from mulligan.service.runs.changes.start_keys import is_of_older_version, refuse_other_request
from mulligan.service.runs.stored.run_reader import RunReader

if TYPE_CHECKING:
    from mulligan.service.decisions.decisions import DecidedStep, Decision, DecisionsResult, Verdict
    from mulligan.service.runs.changes.starting import DetachedRun
    from mulligan.service.server.tokens.decision_ledger import DecisionLedger

# Of an identifier that no other run has, in any store.
UID_BYTES = 6
# Of the name that is recorded with a change.
NAME_CHARS_MAX = 100


class DecisionOptions(TypedDict, total=False):
    """What may be said with a decision, see `Decision`."""

    memory: int | None
    timeout: float | None
    budgets: dict[str, Budget]
    attempt: int | None
    confidence: float | None


class Changes:
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
        drives: bool = True,
        is_for_others: bool = False,
    ) -> None:
        self.reader = reader
        self._may_decide = may_decide
        self._limits = limits or TokenLimits()
        # Where decisions that were refused among others are written down; those that are made are, by the store.
        self._ledger = ledger
        # The notice rules of a new run besides its own.
        self._more_rules = more_rules
        # Whether the caller drives the runs that he changes, and so sees what follows. The answer says it to others,
        # and a process in the background drives the run, unless workers take it.
        self._drives = drives
        # On a server its workers take every run.
        self._has_workers = is_for_others or reader.home.is_remote
        self.by = _name(by or os.environ.get("MULLIGAN_BY", "")) or _user()

    # -- starting ----------------------------------------------------------------------------------------------------

    def start(self, prepared: Prepared, key: str = "", newest: Given | None = None) -> StartedRun:
        """Start a run for workers to take; with a key the run that was started with it, if there is one.

        `KeyMismatch` if that one is of another workflow, or was asked for with something else. `newest`: what was
        given, if the newest version was asked for. Then it may be another one than when it was asked for first.
        """
        if not self._drives and not self._has_workers:
            from mulligan.service.runs.changes.starting import refuse_unstartable

            refuse_unstartable(self.reader, prepared)
        found = self._start(prepared, key, newest)
        self.keep_driven(found.run_id)
        return found

    def start_detached(self, prepared: Prepared, *, key: str = "", wait: str = "") -> DetachedRun:
        """Start a run that a process in the background drives, see `detach`. Raises `KeyUsed` as `create` does."""
        from mulligan.service.runs.changes.starting import detach, refuse_unstartable

        if not self.reader.home.is_remote:
            refuse_unstartable(self.reader, prepared)
        return detach(self.reader, self.create(prepared, key=key)[0], wait=wait)

    def _start(self, prepared: Prepared, key: str, newest: Given | None) -> StartedRun:
        workflow, version = prepared.workflow.name, prepared.version
        if not key:
            (run_id,) = self.create(prepared)
            return StartedRun(run_id, workflow, version, "running", True)
        # Not a key of a schedule, whatever it is called.
        try:
            run_id, is_new = self.start_once(prepared, f"request: {key}", key)
        except KeyMismatch as other:
            if newest is None or not is_of_older_version(
                self.reader, other.run_id, prepared, newest, self._more_rules()
            ):
                raise
            run_id, is_new = other.run_id, False
        if is_new:
            return StartedRun(run_id, workflow, version, "running", True)
        record = self.reader.record(run_id)
        return StartedRun(run_id, workflow, record.version, shown_status(record.status), False)

    def create(
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
                refuse_too_large(prepared.workflow, driver.executor, cluster)
        request = r.RunRequested(_now(), 0, prepared.inputs, prepared.version, by=self.by, kept=tuple(kept))
        prepared = self._with_more_rules(prepared)
        new = [self._new(prepared, request) for _ in range(times)]
        if key:
            new = [msgspec.structs.replace(one, key=f"{prepared.workflow.name}: {key}") for one in new]
        return self._create(new, prepared.workflow, driver)

    def start_once(self, prepared: Prepared, key: str, shown: str = "") -> tuple[int, bool]:
        """The run with this key, and whether it is new. `shown`: the key as messages name it.

        For callers that ask again because no answer came: the run is neither lost nor started twice. `KeyMismatch` if
        it is a run of another workflow or with other inputs: then its result is not the one that is asked for.
        """
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
                more_rules=self._more_rules(),
            )
            return used.run_id, False
        return run_id, True

    def _with_more_rules(self, prepared: Prepared) -> Prepared:
        return msgspec.structs.replace(prepared, notify=self.rules_with(prepared.notify))

    def rules_with(self, rules: Sequence[NoticeRule]) -> tuple[NoticeRule, ...]:
        """These rules for notices of a new run, and those for all runs."""
        return tuple(dict.fromkeys((*rules, *self._more_rules())))

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

    def keep_driven(self, run_id: int) -> None:
        """Start a process in the background for a run that goes on and that nobody drives. `RunNotTakenUp`.

        Unless the caller drives it himself, or workers take it.
        """
        if self._drives or self._has_workers:
            return
        record = self.reader.record(run_id)
        root = record if record.parent_run_id is None else self.reader.record(record.root_run_id or run_id)
        if root.status in RUN_ENDED or root.status == "paused" or self.reader.driver_of(root) is not None:
            return
        from mulligan.service.runs.changes.starting import detach

        detach(self.reader, root.run_id)

    # -- cancel, pause, resume ---------------------------------------------------------------------------------------

    def cancel(self, run_id: int, *, now: bool = False, reason: str = "", dry_run: bool = False) -> ChangeResult:
        """Stop a run: running commands get their grace, cleanup and undo run, then `end`; with `now` only `end`."""
        self._refuse_second_cancel(run_id, now=now)
        return self._change(run_id, r.CancelRequested(_now(), self.by, reason, now), dry_run=dry_run)

    def _refuse_second_cancel(self, run_id: int, *, now: bool) -> None:
        """Refuse a cancel that changes nothing. If nothing is running the run, another cancel lets this one end it."""
        if self.reader.record(run_id).status in RUN_ENDED or not self.reader.is_driven(run_id):
            # The state of a large run takes a while to read, and the core refuses what is left to refuse.
            return
        stop = self.reader.lazy_state(run_id).run.stop
        if stop is not None and stop.cause == "cancelled" and (stop.now or not now):
            hint = "" if now else f"to skip cleanup and undo: mulligan cancel {run_id} --now"
            raise Refused(f"run {run_id} is already being cancelled", hint=hint)

    def pause(self, run_id: int, *, step: str = "", reason: str = "", dry_run: bool = False) -> ChangeResult:
        """Start nothing more until `resume`; with `step` nothing more of that step, or of all steps of that matrix.

        What runs may end.
        """
        record = self.reader.record(run_id)
        if not step:
            refuse_child(record, "pause")
            if record.status == "paused":
                hint = f"to continue it: mulligan resume {run_id}"
                raise Refused(f"run {run_id} is already paused", hint=hint)
        with self._unknown_step(run_id, step):
            report = r.PauseRequested(_now(), self.by, reason, step)
            found = self._change(run_id, report, dry_run=dry_run, is_continued=False)
        if not self._drives or dry_run:
            return found
        running = self._running_attempts(run_id, step) if step else running_commands(self.reader, run_id)
        return msgspec.structs.replace(found, still_running=running)

    def resume(
        self, run_id: int, *, step: str = "", steps: int = 0, reason: str = "", dry_run: bool = False
    ) -> ChangeResult:
        """Let a paused run or step continue, or a run that nothing is running any more.

        With `steps`, let so many steps run and pause the run after them.
        """
        report = r.ResumeRequested(_now(), self.by, reason, step, steps)
        record = self.reader.record(run_id)
        if step:
            with self._unknown_step(run_id, step):
                return self._change(run_id, report, dry_run=dry_run)
        if self._drives:
            refuse_to_take_up(self.reader, record)
        is_paused = record.status not in ("new", "running")
        is_left = not is_paused and record.parent_run_id is None and self.reader.driver_of(record) is None
        if is_left and not steps and (self._drives or not self._has_workers):
            # It is only to be driven: by the caller, or by a process in the background.
            if not dry_run:
                self.keep_driven(run_id)
            follows = [] if self._drives else ["a process in the background continues it: no other drives it"]
            return ChangeResult(run_id, dry_run, "running", follows, [], [], [])
        if not self._drives:
            refuse_child(record, "resume")
            if not is_paused and not steps:
                is_driven = self.reader.driver_of(record) is not None
                hint = "the next worker that is free continues it: mulligan worker"
                raise Refused(
                    f"run {run_id} is not paused, so there is nothing to resume",
                    hint="a process drives it" if is_driven else hint,
                )
        return self._change(run_id, report, dry_run=dry_run)

    def newest_idle_run(self) -> int:
        """The newest run that nothing is running, for `resume`."""
        unfinished = [
            one for one in self.reader.runs(statuses=("new", "running", "paused")) if one.parent_run_id is None
        ]
        idle = [record.run_id for record in unfinished if self.reader.driver_of(record) is None]
        if not idle:
            where = "" if self.reader.home.is_there else f" in '{self.reader.home.folder}'"
            why = "every unfinished run is driven by a process" if unfinished else "no run is unfinished"
            hint = "" if unfinished else "to run the failed steps of a run again: mulligan retry RUN"
            raise Refused(f"there is no run to resume{where}: {why}", hint=hint)
        # Prefer a run that can continue by itself to one that waits for a person or an event.
        asking = {waiting.run_id for waiting in self.reader.store.waiting_places()}
        return next((found for found in idle if found not in asking), idle[0])

    @contextmanager
    def _unknown_step(self, run_id: int, step: str) -> Iterator[None]:
        """Add to the core's refusal of a step the name that was probably meant."""
        try:
            yield
        except UnknownStep as error:
            state = self.reader.lazy_state(run_id)
            known = (*state.graph.nodes, *(one.sweep for one in state.workflow.steps if one.sweep))
            error.hint = did_you_mean(step, known) or f"list its steps: mulligan show {run_id}"
            raise

    def _running_attempts(self, run_id: int, step: str) -> list[str]:
        """What still runs of a step that was paused, or of all steps of a matrix."""
        state = self.reader.lazy_state(run_id)
        held = [state.places[name] for name in state.run.paused_steps if step in (name, state.step(name).sweep)]
        return [place.key for place in held if place.is_active and place.status != "ready"]

    # -- retry and fork ----------------------------------------------------------------------------------------------

    def retry(
        self, run_id: int, *, reason: str = "", dry_run: bool = False, **chosen: Unpack[RoundOptions]
    ) -> RetryResult:
        """Open another round: what did not complete runs again, and what depends on it.

        The round of a child run is part of a round of the run at the top.
        """
        report, planned = self._planned_round(run_id, reason, **chosen)
        if dry_run:
            self.refuse_keeping(planned.approvals, is_changed=chosen.get("corrected") is not None)
            return planned
        self.send(planned.root_run_id or run_id, report)
        status = self.reader.record(run_id).status
        self.keep_driven(run_id)
        return msgspec.structs.replace(planned, dry_run=False, status=status)

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
    ) -> tuple[r.RetryRequested, RetryResult]:
        record = self.reader.record(run_id)
        is_child = record.parent_run_id is not None
        if is_child:
            refuse_retry_of_child(self.reader, record, has_file=corrected is not None)
        state = self.reader.state(run_id)
        if not state.places:
            raise RunNotFinished(f"run {run_id} has not started yet, so there is nothing to retry")
        refuse_missing_worktree(state)
        revised = None
        differences: tuple[str, ...] = ()
        if corrected is not None:
            revised, differences = describe_revision(
                self.reader, state, corrected, keep_completed=keep_completed, from_step=from_step, force=force
            )
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
        with _suggested(steps):
            planned = round_plan(plan_next_round(state, report, differences), report, record.status)
        if not is_child:
            return report, planned
        asked = msgspec.structs.replace(report, from_start=from_start)
        return request_from_top(self.reader, record, asked), in_tree(planned, record.root_run_id, from_start=from_start)

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
        state = self.reader.state(run_id)
        self.reader.refuse_unknown(run_id, step)
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
            report = r.Classified(_now(), step, "retry", self.by, reason)
            return self._change(run_id, report, dry_run=dry_run)
        if state.run.status in RUN_ENDED and place is not None and place.status == "failed":
            # The same decision as about a parked step.
            self.refuse_beyond_limits(r.Classified(_now(), step, "retry", self.by, reason))
            return self.retry(run_id, from_step=step, reason=reason, dry_run=dry_run)
        raise StepNotParked(
            f"'{step}' of run {run_id} is {place.status if place else 'waiting'}: it neither failed nor is it parked",
            hint=_what_else(run_id, state, step),
            step=step,
        )

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
        dry_run: bool = False,
    ) -> ForkResult:
        """Start a run that keeps the results of another up to a step, with other inputs or a corrected workflow.

        `then`: the other run as it was at its event `seq`; by default as it is now. `keep_completed`: completed steps
        are kept although another step than `from_step` runs that they depend on.
        """
        old, prepared, planned = self._planned_fork(
            run_id, from_step, given, workflow, then, keep_completed=keep_completed
        )
        plan = fork_plan(old, prepared.workflow, from_step, planned, dry_run=dry_run)
        self.refuse_keeping(plan.approvals)
        if dry_run:
            return plan
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
        started = self.create_fork(prepared, request, driver)
        self.keep_driven(started)
        return msgspec.structs.replace(plan, fork_run_id=started)

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
        refuse_callers_worktree(self.reader, run_id, old)
        chosen = keep_workspace(workflow, old.workflow) if workflow else old.workflow
        kept_inputs = {name: value for name, value in old.run.inputs.items() if name in chosen.inputs}
        # An input of a child run may be an artifact.
        evaluator = Cel(os.environ, self.reader.store.artifacts.fetch)
        inputs = check_recorded_inputs(chosen, {**kept_inputs, **given}, evaluator)
        refuse_references({name: inputs[name] for name in given})
        if not self.reader.home.is_remote:
            refuse_missing_files(chosen, Path(old.run.cwd))
        prepared = prepare_checked(chosen, inputs, Path(old.run.cwd), labels=self.reader.labels(run_id))
        with _suggested(step.name for step in chosen.steps):
            stale = stale_results(self.reader.home, old, old.graph.nodes)
            planned = plan_fork(old, Graph(chosen), from_step, stale, inputs=inputs, keep_completed=keep_completed)
        if planned.worktree is not None:
            refuse_moving_worktree(self.reader, run_id)
            refuse_missing_worktree(old)
        refuse_shared_worktree(run_id, ((one.step, one.output) for one in planned.kept))
        return old, prepared, planned

    def send_event(
        self, run_id: int, name: str, value: Any = None, *, key: str = "", dry_run: bool = False, foresees: bool = True
    ) -> ChangeResult:
        """Send an event to a run. `foresees`: whether the answer says what follows, for which the run is read."""
        return self._change(run_id, r.EventSent(_now(), name, value, self.by, key), dry_run=dry_run, foresees=foresees)

    # -- decisions ---------------------------------------------------------------------------------------------------

    def approve(
        self, run_id: int, step: str, *, is_approved: bool, reason: str = "", dry_run: bool = False
    ) -> ChangeResult:
        """Answer an approval that a step, or one command below it, waits for."""
        from mulligan.service.decisions.inbox import Decisions

        place = Decisions(self.reader).find_approval(run_id, step)
        try:
            return self._change(run_id, r.ApprovalGiven(_now(), place, is_approved, self.by, reason), dry_run=dry_run)
        except StepNotWaitingForApproval:
            self.reader.refuse_unknown(run_id, place)
            raise

    def classify(
        self,
        run_id: int,
        step: str,
        verdict: Verdict,
        reason: str,
        *,
        dry_run: bool = False,
        **more: Unpack[DecisionOptions],
    ) -> DecidedStep:
        """Decide about a parked step: about this attempt, or whichever is parked. Raises if it is refused."""
        from mulligan.service.decisions.decisions import Decision

        (found,) = self.decide([Decision(run_id, step, verdict, reason, **more)], dry_run=dry_run).decisions
        if found.error is not None:
            raise found.error
        return found

    def decide(self, decided: Sequence[Decision], *, dry_run: bool = False) -> DecisionsResult:
        """Record decisions about parked steps, each by itself: one that is refused does not stop the others."""
        from mulligan.service.decisions.decisions import DecisionsResult

        states: dict[int, State] = {}
        found = [self._decide(one, states, dry_run=dry_run) for one in decided]
        for run_id in dict.fromkeys(one.decision.run_id for one in found if one.is_recorded):
            # A run that waited for the decision may have been left by its process.
            self.keep_driven(run_id)
        return DecisionsResult(dry_run, found)

    def preview_decisions(self, decided: Sequence[Decision]) -> list[DecidedStep]:
        """What would follow from each, one after the other. Writes nothing; raises if any would be refused."""
        from mulligan.service.decisions.decisions import act_on_each

        states: dict[int, State] = {}
        seen: set[tuple[int, str]] = set()

        def preview(one: Decision) -> DecidedStep:
            if (one.run_id, one.step) in seen:
                raise InputInvalid(f"there are two decisions about '{one.step}' of run {one.run_id}")
            seen.add((one.run_id, one.step))
            found = self._decide(one, states, dry_run=True)
            if found.error is not None:
                raise found.error
            return found

        return act_on_each(decided, preview)

    def _decide(self, one: Decision, states: dict[int, State], *, dry_run: bool) -> DecidedStep:
        """`states`: the runs as the decisions so far would leave them, in a dry run."""
        from mulligan.service.decisions.decisions import DecidedStep, follow_decision

        report = r.Classified(
            at=_now(),
            step=one.step,
            verdict=one.verdict,
            by=self.by,
            reason=one.reason,
            memory=one.memory,
            timeout=one.timeout,
            budgets=one.budgets,
            attempt=one.attempt,
            confidence=one.confidence,
        )
        follows, starts = list[str](), list[str]()
        try:
            if dry_run or not self._drives:
                state = states.get(one.run_id) or self.reader.state(one.run_id)
                self.refuse_beyond_limits(report)
                follows, starts = follow_decision(self.reader, state, report)
                if dry_run:
                    states[one.run_id] = state
            if not dry_run:
                self._send_decision(one, report)
        except StoreUnavailable:
            raise
        except MulliganError as error:
            if self._ledger is not None and not dry_run:
                self._ledger.refuse(one.run_id, one.step, one.verdict, one.reason, error)
            return DecidedStep(one, self.by, False, error=error)
        return DecidedStep(one, self.by, not dry_run, follows, starts)

    def _send_decision(self, one: Decision, report: r.Classified) -> None:
        try:
            self.send(one.run_id, report)
        except UnknownStep:
            self.reader.refuse_unknown(one.run_id, one.step)
            raise

    # -- sending -----------------------------------------------------------------------------------------------------

    def _change(
        self, run_id: int, report: r.Report, *, dry_run: bool, is_continued: bool = True, foresees: bool = True
    ) -> ChangeResult:
        """Send a report and say what follows; with `dry_run` only that. `is_continued`: the run goes on."""
        is_seen = dry_run or (foresees and not self._drives)
        found = self._foresee(run_id, report) if is_seen else ChangeResult(run_id, False, "", [], [], [], [])
        if dry_run:
            return found
        self.send(run_id, report)
        found = msgspec.structs.replace(found, dry_run=False, status=shown_status(self.reader.record(run_id).status))
        if is_continued:
            self.keep_driven(run_id)
        return found

    def _foresee(self, run_id: int, report: r.Report) -> ChangeResult:
        from mulligan.service.runs.changes.foresight import preview_change

        self.refuse_beyond_limits(report)
        try:
            return preview_change(self.reader, run_id, report)
        except CodecError as error:
            if not (isinstance(report, r.CancelRequested) and report.now):
                raise
            # Nobody knows what follows in a run that cannot be read. It ends all the same.
            return ChangeResult(run_id, True, "cancelled", [f"the run ends at once: {error.message}"], [], [], [])

    def send(self, run_id: int, report: r.Report) -> None:
        """Put a report into the run's inbox, wait for the answer, and raise if it was refused."""
        self.reader.record(run_id)
        _, answer = ask(self.reader, run_id, report)
        if answer.error:
            raise error_by_code(answer.error)(answer.message, hint=answer.hint)

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


@contextmanager
def _suggested(known: Iterable[str]) -> Iterator[None]:
    """Add to the refusal of an unknown step the name that was probably meant."""
    try:
        yield
    except UnknownStep as error:
        step = str(error.data["step"])
        raise UnknownStep(error.message, hint=error.hint or did_you_mean(step, known), step=step) from None


def _what_else(run_id: int, state: State, step: str) -> str:
    """What can be done with a step that cannot be retried."""
    if state.run.status in RUN_ENDED:
        return f"to run it again with the steps after it: fork run {run_id} from '{step}'"
    return "retry it when it has failed and the run has ended, or when it is parked"


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
    # Needed where nobody is named, and it loads the control of terminals.
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        # This user id has no name, which is common in containers.
        return "somebody"
