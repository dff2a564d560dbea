"""Turns a report into facts, or refuses it, given the current state of the run.

A verb that is not possible now raises. A report of a worker that is late or a duplicate is logged and changes nothing.
A timer that is no longer needed is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from mulligan.core.deciding.agents.budgets import check_raised_budgets, unreported_warning
from mulligan.core.deciding.agents.triage_agent import is_decided
from mulligan.core.deciding.classify import LIMIT, MACHINE, OWN, PAST_DEADLINE, classify
from mulligan.core.deciding.flow import wake_starts
from mulligan.core.deciding.ladder import reruns_after_loss, start_due_retry, with_cap_detail
from mulligan.core.deciding.lifecycle import NOTHING, Facts, add_location, make_failure
from mulligan.core.deciding.programs import (
    end_turn,
    end_waiting,
    goes_on,
    lacks_turn,
    record_calls,
    refuse_turn,
    usage_of_attempt,
)
from mulligan.core.deciding.rounds.child_failure import UNDO_FAILED, child_failure
from mulligan.core.deciding.rounds.child_rounds import ended_child, refuse_child, requested_round
from mulligan.core.deciding.rounds.kept_approvals import refuse_changed_inputs
from mulligan.core.deciding.rounds.rounds import (
    Round,
    after_stop,
    fork_hint,
    is_correctable,
    plan_revision,
    plan_round,
    stop_to_correct,
    with_stopped_run,
)
from mulligan.core.deciding.run_events import end_without_event, receive_event
from mulligan.core.deciding.stopping import stop_place
from mulligan.core.deciding.workers.adjustment import decided_adjustment
from mulligan.core.deciding.workers.affinity import bound_host
from mulligan.core.deciding.workers.resource_usage import adjustments_of, attempt_limits
from mulligan.core.evolve.evolve_places import holds_conversation, is_agent, is_engine_action
from mulligan.core.evolve.evolve_programs import ENDING, WAITING
from mulligan.core.evolve.revision import Difference, revise
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.actions import traits_of
from mulligan.core.model.agents.spending import spent_from_usage
from mulligan.core.model.artifacts import dropped_reference
from mulligan.core.model.clusters.scheduler_job import SLURM
from mulligan.core.model.event_types import Adjusted
from mulligan.core.model.failure import Failure, failure
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.run_data import size_problem
from mulligan.core.model.text.formatting import format_size
from mulligan.core.model.workflow import END
from mulligan.core.state.deadlines import deadline_of
from mulligan.core.state.held_steps import choose_steps, held_places
from mulligan.core.state.not_begun import count_not_begun
from mulligan.core.state.scope import RUN_TOO_LONG, DecisionContext, fill_params
from mulligan.core.state.state import Place, State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import (
    InputInvalid,
    NothingToRetry,
    OtherAttemptParked,
    Refused,
    RunFinished,
    StepNotParked,
    StepNotWaitingForApproval,
    UndoFailed,
    UnknownStep,
)

LATEST = datetime.max.replace(tzinfo=UTC)


def admit(now: DecisionContext, report: r.Report) -> Facts:
    """The facts that a report brings. Each is requested after the one before is in the state."""
    if now.state.run.status == "new" and not isinstance(report, r.RunRequested):
        raise Refused("the run has not started")
    return _HANDLERS[type(report)](now, report)


# -- the run ------------------------------------------------------------------------------


def _run_requested(now: DecisionContext, report: r.RunRequested) -> Facts:
    if report.history:
        yield from _run_forked(now, report)
        return
    if now.state.run.status != "new":
        raise Refused(f"run {now.state.run.run_id} has already started")
    workflow = now.state.workflow
    yield e.RunStarted(
        report.run_id,
        workflow.name,
        version=report.version,
        inputs=report.inputs,
        by=report.by,
        parent_run_id=report.parent_run_id,
        forked_from=report.forked_from,
        kept=report.kept,
        due=_run_due(now),
        cwd=report.cwd,
        uid=report.uid,
        file=report.file,
        digest=report.digest,
        stale=report.stale,
        changed_only=report.changed_only,
        forced=report.forced,
        labels=report.labels,
        callers_budget=report.callers_budget,
        capacity=report.capacity,
        data=report.data,
        sessions=report.sessions,
        notify=report.notify,
        worktree=report.worktree,
    )


def _run_forked(now: DecisionContext, report: r.RunRequested) -> Facts:
    """The run goes on from the history that it keeps; then what is decided in another way than there.

    It is refused if that was not possible then.
    """
    assert report.forked_from is not None
    inputs = report.inputs if report.has_inputs else None
    if inputs is not None:
        refuse_changed_inputs(now.state, inputs)
    if report.decision is not None:
        # Its first fact is not used: this only raises if the decision is not possible.
        next(iter(admit(now, report.decision)), None)
    yield e.RunForked(report.forked_from, report.forked_at, report.by, report.reason, inputs, report.worktree)
    if report.decision is not None:
        # What runs again may end at once, and the run may fail fast: then it goes on to its end without the decision.
        with suppress(Refused):
            yield from admit(now, report.decision)


def _run_due(now: DecisionContext) -> Any:
    limit = now.state.workflow.timeout
    return None if limit is None else now.at + timedelta(seconds=limit)


def _cancel(now: DecisionContext, report: r.CancelRequested) -> Facts:
    run = now.state.run
    if run.status in RUN_ENDED:
        ended = "was cancelled" if run.status == "cancelled" else run.status
        raise RunFinished(
            f"run {run.run_id} {ended} on {run.at:%Y-%m-%d at %H:%M} UTC, so there is nothing to cancel",
            hint=rerun_hint(now.state),
        )
    stop = run.stop
    if stop is None or stop.cause != "cancelled" or (report.now and not stop.now):
        yield e.RunStopping(
            "cancelled",
            report.now,
            by=report.by,
            reason=report.reason,
            held=run.held,
            unstarted=run.unstarted,
            not_begun=count_not_begun(now.state),
        )


def _pause(now: DecisionContext, report: r.PauseRequested) -> Facts:
    run = now.state.run
    if run.status in RUN_ENDED:
        raise RunFinished(f"run {run.run_id} {run.status}, so there is nothing to pause")
    if run.stop is not None:
        raise Refused(f"run {run.run_id} is stopping and cannot be paused")
    if report.step:
        yield from _pause_steps(now, report)
    elif run.status == "running":
        yield e.RunPaused(report.by, report.reason)


def _pause_steps(now: DecisionContext, report: r.PauseRequested) -> Facts:
    """Pause a step, or all steps of a matrix that have not ended."""
    steps = _named_steps(now, report.step)
    open_steps = [place for place in steps if not place.has_ended]
    if not open_steps:
        raise Refused(f"step '{report.step}' is {steps[0].status}, so there is nothing to pause", step=report.step)
    fresh = [place for place in open_steps if place.pause is None]
    if not fresh:
        pause = open_steps[0].pause
        by = f" by {pause.by}" if pause is not None and pause.by else ""
        hint = f"to resume it: mulligan resume {now.state.run.run_id} {report.step}"
        raise Refused(f"step '{report.step}' is already paused{by}", hint=hint, step=report.step)
    for place in fresh:
        yield e.StepPaused(place.key, report.by, report.reason)


def _resume_steps(now: DecisionContext, report: r.ResumeRequested) -> Facts:
    held = [place for place in _named_steps(now, report.step) if place.pause is not None]
    if not held:
        raise Refused(f"step '{report.step}' is not paused", step=report.step)
    for place in held:
        # An earlier consequence may have ended the run or resumed the step.
        if place.pause is not None:
            yield e.StepResumed(place.key, report.by, report.reason)


def _named_steps(now: DecisionContext, name: str) -> list[Place]:
    """The step of that name, or all steps of the matrix of that name."""
    state = now.state
    if name in state.graph.nodes:
        return [state.places[name]]
    if name == END:
        raise Refused("'end' cannot be paused: it always runs", step=name)
    found = [state.places[step.name] for step in state.workflow.steps if step.sweep == name]
    if not found:
        raise UnknownStep(f"'{name}' is not a step of run {state.run.run_id}", step=name)
    return found


def rerun_hint(state: State) -> str:
    """The hint for running an ended run again: another round if it did not complete, otherwise a fork."""
    if state.run.status == "completed":
        return fork_hint(state)
    return f"to run what failed again: mulligan retry {state.run.run_id}"


def _resume(now: DecisionContext, report: r.ResumeRequested) -> Facts:
    run = now.state.run
    if run.status in RUN_ENDED:
        raise RunFinished(
            f"run {run.run_id} {run.status}, so there is nothing to resume",
            hint=rerun_hint(now.state),
        )
    if report.step:
        yield from _resume_steps(now, report)
        return
    if report.steps and run.stop is not None:
        raise Refused(f"run {run.run_id} is stopping: it cannot be resumed for some steps only")
    if report.steps and run.status == "running":
        # Nobody paused it: its process was interrupted, or drives it now.
        yield e.RunPaused(report.by, report.reason)
    if run.status == "paused":
        assert run.paused_at is not None
        yield e.RunResumed(
            report.by,
            report.reason,
            due=None if run.due is None else run.due + (now.at - run.paused_at),
            held=run.held,
            unstarted=_unstarted(now.state),
            steps=report.steps,
            released=choose_steps(now.state, report.steps) if report.steps else (),
            after_steps=run.stepping is not None,
        )


def _unstarted(state: State) -> tuple[str, ...]:
    """The actions of the engine that could not start: because of the pause, or because their step was not chosen."""
    if state.run.stepping is None:
        return state.run.unstarted
    held = (place.key for step in state.steps() for place in held_places(state, step) if is_engine_action(place.spec))
    return tuple(dict.fromkeys((*state.run.unstarted, *held)))


def _retry(now: DecisionContext, report: r.RetryRequested) -> Facts:
    refuse_child(now.state)
    if not is_correctable(now.state, report):
        yield from _open_round(now, report)
        return
    state = now.state.copy()
    stopped = with_stopped_run(state, report)
    found = plan_revision(state, stopped)
    if found is None:
        raise NothingToRetry(f"run {state.run.run_id} has this program already, so there is nothing to correct")
    _refuse_under_revision(state, stopped, *found)
    yield stop_to_correct(now.state, report)


def open_corrected_round(now: DecisionContext, report: r.RetryRequested) -> Facts:
    """All that ran has been stopped for a corrected program: go on with it. If that cannot be, the run has ended."""
    try:
        yield from _open_round(now, after_stop(now.state, report))
    except Refused as refused:
        # It was checked before anything was stopped: something has failed since.
        message = f"the run is cancelled, not corrected: {refused.message}"
        found = failure("CORRECTION_REFUSED", message, severity="warning")
        yield e.WarningRecorded(now.state.graph.program, found)


def _round_requested(now: DecisionContext, report: r.RoundRequested) -> Facts:
    asked = requested_round(now.state, report)
    if asked is not None:
        yield from _open_round(now, _forced_if_decided(now, asked, report), report)


def _forced_if_decided(now: DecisionContext, asked: r.RetryRequested, report: r.RoundRequested) -> r.RetryRequested:
    """By force if the round would be refused because of a failed undo, and somebody decided that it begins."""
    if asked.force or not report.is_decided:
        return asked
    try:
        found = plan_revision(now.state, asked)
        if found is None:
            plan_round(now.state, asked)
        else:
            _refuse_under_revision(now.state, asked, *found)
    except UndoFailed:
        return msgspec.structs.replace(asked, force=True)
    return asked


def _open_round(now: DecisionContext, report: r.RetryRequested, caller: r.RoundRequested | None = None) -> Facts:
    found = plan_revision(now.state, report)
    if found is None:
        yield _run_reopened(now, report, plan_round(now.state, report), caller)
        return
    fact, difference = found
    _refuse_under_revision(now.state, report, fact, difference)
    yield fact
    yield _run_reopened(now, report, plan_round(now.state, report, difference), caller)


def _refuse_under_revision(before: State, report: r.RetryRequested, fact: e.RunRevised, difference: Difference) -> None:
    """Raise what the round under the corrected definition would raise: a yielded fact cannot be taken back."""
    state = before.copy()
    revise(state, fact, e.Entry(state.run.seq + 1, state.run.at, 0, fact))
    plan_round(state, report, difference)


def _run_reopened(
    now: DecisionContext, report: r.RetryRequested, plan: Round, caller: r.RoundRequested | None
) -> e.RunReopened:
    return e.RunReopened(
        now.state.run.round + 1,
        report.by,
        reason=report.reason,
        put_back=tuple(name for name in plan.steps if name not in now.state.calls),
        dropped=plan.dropped,
        due=_run_due(now),
        from_step=plan.from_step,
        indexes=plan.items,
        adjustments=adjustments_of(plan.proposals),
        stale=plan.stale,
        budgets=report.budgets,
        fresh=plan.fresh,
        keep_completed=plan.keep_completed,
        from_start=report.from_start,
        child=report.child,
        adjusts=report.adjust,
        attempt=0 if caller is None else caller.attempt,
        callers_budget=None if caller is None else caller.budget,
        is_forced=plan.is_forced,
    )


# -- tasks ------------------------------------------------------------------------------


# What a place without a task has in `phase` while it is running.
_NO_TASK = ("validating", "finishing", "stopped", WAITING, ENDING)


def _stale_reason(state: State, key: str, attempt: int) -> str:
    """Why a report about an attempt is refused; empty if the attempt is the current one and has not ended."""
    place = state.places.get(key)
    if state.run.status in RUN_ENDED:
        return "run_ended"
    if place is None:
        return "unknown_place"
    if place.attempt != attempt:
        return "stale_attempt"
    is_over = place.status not in ("ready", "running") or place.phase in _NO_TASK
    return "already_ended" if is_over or place.spec.action is None else ""


def _task_started(now: DecisionContext, report: r.TaskStarted) -> Facts:
    reason = _stale_reason(now.state, report.place, report.attempt)
    if not reason and now.state.places[report.place].status != "ready":
        reason = "already_started"
    if reason:
        return iter((e.ReportRefused(report.place, report.attempt, reason),))
    place = now.state.places[report.place]
    if (progress := place.program) is not None:
        if report.turn != progress.turn:
            return iter((e.ReportRefused(report.place, report.attempt, "stale_turn"),))
        if progress.is_later:
            return iter((e.TurnStarted(report.place, report.attempt, report.turn, report.worker, report.host),))
    bound = bound_host(now.state, place)
    instead_of = bound if report.host not in ("", bound) else ""
    return iter((e.AttemptStarted(report.place, report.attempt, report.worker, report.host, instead_of=instead_of),))


def _task_ended(now: DecisionContext, report: r.TaskEnded) -> Facts:
    reason = _stale_reason(now.state, report.place, report.attempt)
    if not reason and report.turn is not None:
        return end_turn(now, now.state.places[report.place], report, report.turn)
    if not reason and lacks_turn(now.state.places[report.place], report):
        return refuse_turn(now, now.state.places[report.place], report, "the report does not say what it has called")
    return iter((e.ReportRefused(report.place, report.attempt, reason) if reason else _attempt_ended(now, report),))


def _calls_made(now: DecisionContext, report: r.CallsMade) -> Facts:
    if goes_on(now.state, report):
        return record_calls(now, now.state.places[report.place], report)
    return _task_ended(now, report.as_end)


def _attempt_ended(now: DecisionContext, report: r.TaskEnded) -> e.Fact:
    place = now.state.places[report.place]
    found, notes = classify(_with_data_problem(now, report) if report.data else report.outcome)
    warnings = tuple(add_location(now, place, note) for note in notes) if notes else ()
    if found is None and not (report.outcome.is_stopped and _was_stopped(now, place)):
        if not report.reused_run_id:
            warnings += _memory_warnings(now, place, report.usage) + _budget_warnings(now, place, report.usage)
        return e.AttemptSucceeded(
            place.key,
            place.attempt,
            output=_dropped_output(now, place, report.outcome) if report.outcome.output_warning else report.output,
            usage=report.usage,
            warnings=warnings,
            files=report.files,
            # A run that takes over the result would lack the data.
            fingerprint="" if report.data else report.fingerprint,
            reused_run_id=report.reused_run_id,
            artifacts=report.artifacts,
            data=report.data,
            made_of=report.made_of,
        )
    if found is None or _was_stopped(now, place):
        return e.AttemptCancelled(place.key, place.attempt, spent_from_usage(report.usage).as_usage)
    if report.outcome.is_machine_broken and reruns_after_loss(place) and not spent_from_usage(report.usage).as_usage:
        return e.AttemptLost(place.key, place.attempt, machine=report.outcome.machine)
    found = add_location(now, place, msgspec.structs.replace(found, details=_failure_details(place, found, report)))
    return e.AttemptFailed(
        place.key,
        place.attempt,
        failure=with_cap_detail(place, found),
        usage=usage_of_attempt(place, report),
        warnings=warnings,
        artifacts=report.artifacts,
    )


def _dropped_output(now: DecisionContext, place: Place, outcome: Outcome) -> dict[str, Any]:
    """What stands for an output that is too large to be kept. Whoever reads it fails."""
    return dropped_reference(f"{now.artifact_folder(place)}/output.txt", outcome.output_bytes)


def _with_data_problem(now: DecisionContext, report: r.TaskEnded) -> Outcome:
    """The outcome; its output is not valid if the data that it sets is too large."""
    problem = size_problem(now.state.run.data, report.data)
    return msgspec.structs.replace(report.outcome, output_error=problem) if problem else report.outcome


def _failure_details(place: Place, found: Failure, report: r.TaskEnded) -> dict[str, Any]:
    """The details of the failure, with the peak memory and the exceeded limit: a later adjustment uses both."""
    details = {**found.details, **{k: v for k, v in report.usage.items() if k == "peak_memory"}}
    if report.outcome.machine:
        details[MACHINE] = report.outcome.machine
    if report.job is not None:
        details[SLURM] = report.job.details
    # What a fake says stands for what a worker observes.
    is_faked = report.outcome.said is not None and not found.exceptions
    if found.code == "OUT_OF_MEMORY":
        memory = attempt_limits(place).memory
        own = {} if report.outcome.is_out_of_memory or is_faked else {LIMIT: OWN}
        return {**own, **details, "memory": memory} if memory else {**own, **details}
    if found.code != "TIMEOUT":
        return details
    if report.outcome.is_past_deadline:
        return {**details, LIMIT: "deadline"}
    if not report.outcome.is_timed_out and not is_faked:
        return {LIMIT: OWN, **details}
    timeout = attempt_limits(place).timeout
    return {**details, LIMIT: "timeout", "timeout": timeout} if timeout else details


def _memory_warnings(now: DecisionContext, place: Place, usage: dict[str, Any]) -> tuple[Failure, ...]:
    """A warning if the attempt used more memory than its limit, too briefly to be stopped for it."""
    if place.spec.resources is None and place.climb.adjusted is None:
        return ()
    may, used = attempt_limits(place).memory, usage.get("peak_memory")
    if not may or not isinstance(used, int) or used <= may:
        return ()
    message = f"used {format_size(used)} of memory, more than the {format_size(may)} it asks for"
    return (add_location(now, place, failure("OUT_OF_MEMORY", message, severity="warning")),)


def _budget_warnings(now: DecisionContext, place: Place, usage: dict[str, Any]) -> tuple[Failure, ...]:
    """A warning if a budget cannot be enforced because the agent did not report its spending."""
    found = unreported_warning(now.state, place, usage) if is_agent(place.spec) else None
    return () if found is None else (add_location(now, place, found),)


def _was_stopped(now: DecisionContext, place: Place) -> bool:
    """Whether it ended because it was asked to. If it was left to finish, what it reports counts."""
    return place.phase == "stopping" and not now.state.is_left_to_finish(place)


def _lease_expired(now: DecisionContext, report: r.LeaseExpired) -> Facts:
    reason = _stale_reason(now.state, report.place, report.attempt)
    if reason:
        yield e.ReportRefused(report.place, report.attempt, reason)
    else:
        yield e.AttemptLost(report.place, report.attempt, report.worker, report.job)


def _task_interrupted(now: DecisionContext, report: r.TaskInterrupted) -> Facts:
    reason = _stale_reason(now.state, report.place, report.attempt)
    if reason:
        yield e.ReportRefused(report.place, report.attempt, reason)
    else:
        yield e.AttemptInterrupted(
            report.place, report.attempt, report.ran_seconds, report.life_seconds, report.job, report.reason
        )


def end_open_attempt(now: DecisionContext, place: Place) -> Facts:
    """What follows in a fork for an attempt that ran in the other run: it runs again, unless it was to end there."""
    if traits_of(place.spec.action).calls_run and place.phase:
        return _child_ended(now, r.ChildEnded(now.at, place.key, place.attempt, 0, "cancelled"))
    return iter((e.AttemptInterrupted(place.key, place.attempt),))


def _child_ended(now: DecisionContext, report: r.ChildEnded) -> Facts:
    reason = _stale_reason(now.state, report.place, report.attempt)
    if reason:
        yield e.ReportRefused(report.place, report.attempt, reason)
        return
    place = now.state.places[report.place]
    child = ended_child(now.state, place, report)
    if report.status == "completed":
        yield e.AttemptSucceeded(place.key, place.attempt, report.outputs, report.usage)
    elif place.phase == "timeout":
        had = {LIMIT: "timeout", "timeout": limit} if (limit := attempt_limits(place).timeout) else {}
        had |= {UNDO_FAILED: list(report.undo_failed)} if report.undo_failed else {}
        found = make_failure(now, place, "TIMEOUT", "the child run took longer than its timeout", details=had)
        yield e.AttemptFailed(place.key, place.attempt, with_cap_detail(place, found), report.usage, child=child)
    elif place.phase == "stopping" or not now.may_start(place):
        yield e.AttemptCancelled(place.key, place.attempt, report.usage, child)
    else:
        found = add_location(now, place, child_failure(place.spec.action, report))
        yield e.AttemptFailed(place.key, place.attempt, found, report.usage, child=child)


# -- people ------------------------------------------------------------------------------


def _classified(now: DecisionContext, report: r.Classified) -> Facts:
    place = now.state.places.get(report.step)
    if place is None or place.role != "step":
        raise UnknownStep(f"'{report.step}' is not a step of run {now.state.run.run_id}", step=report.step)
    if place.status != "pending_failed" or is_decided(place):
        status = "already decided" if place.status == "pending_failed" else place.status
        raise StepNotParked(
            f"step '{report.step}' is {status}, so there is nothing to classify",
            hint=_earlier_decision(place) or _other_verb_hint(now, place),
            step=report.step,
        )
    if report.attempt is not None and report.attempt != place.attempt:
        raise OtherAttemptParked(
            f"the decision is about attempt {report.attempt} of step '{report.step}', which is parked after attempt "
            f"{place.attempt}",
            hint=_earlier_decision(place) or "look at the failure that is parked now, and decide about it",
            step=report.step,
            attempt=place.attempt,
        )
    if report.confidence is not None and not 0 <= report.confidence <= 1:
        raise InputInvalid(f"a confidence is a number from 0 to 1, not {report.confidence:g}")
    if not report.reason.strip():
        raise InputInvalid("a classification needs a reason", hint="say why: --reason TEXT")
    adjusted = _requested_adjustment(place, report)
    check_raised_budgets(now.state, report.budgets, now.state.graph)
    yield e.StepClassified(
        place.key,
        place.attempt,
        verdict=report.verdict,
        reason=report.reason,
        by=report.by,
        adjusted=adjusted,
        budgets=report.budgets,
        confidence=report.confidence,
    )


def _earlier_decision(place: Place) -> str:
    """The hint if the step was already classified: the decision and its author."""
    ruling = place.climb.ruling
    by = f" by {ruling.by}" if ruling is not None and ruling.by else ""
    return "" if ruling is None else f"already classified as {ruling.verdict}{by}: {ruling.reason}"


def _other_verb_hint(now: DecisionContext, place: Place | None) -> str:
    """The hint for the right verb: a parked step is classified, an approval is answered."""
    if place is not None and place.status == "pending_failed":
        return f"the step is parked: mulligan classify {now.state.run.run_id} {place.key} retry|fail --reason TEXT"
    if place is not None and place.is_open_approval:
        return f"the step waits for an approval: mulligan approve {now.state.run.run_id} {place.key} --reason TEXT"
    return ""


def _requested_adjustment(place: Place, report: r.Classified) -> Adjusted | None:
    """The memory and timeout that a person gives the next attempt."""
    for name, asked in (("memory", report.memory), ("timeout", report.timeout)):
        if asked is not None and asked <= 0:
            raise InputInvalid(f"{name} must be greater than 0, not {asked:g}")
    return decided_adjustment(place, report.memory, report.timeout)


def _approval(now: DecisionContext, report: r.ApprovalGiven) -> Facts:
    place = now.state.places.get(report.place)
    if place is None or not place.is_open_approval:
        message = f"'{report.place}' does not wait for an approval"
        raise StepNotWaitingForApproval(message, hint=_other_verb_hint(now, place), step=report.place)
    if not report.reason.strip():
        raise InputInvalid("an approval needs a reason", hint="say why: --reason TEXT")
    if report.is_approved:
        output = {"approved": True, "by": report.by, "reason": report.reason}
        yield e.AttemptSucceeded(place.key, place.attempt, output)
    else:
        found = make_failure(now, place, "APPROVAL_REFUSED", report.reason, details={"by": report.by})
        yield e.AttemptFailed(place.key, place.attempt, found)


# -- timers ------------------------------------------------------------------------------


def _starts_due(now: DecisionContext, report: r.StartsDue) -> Facts:
    return NOTHING if now.state.run.status in RUN_ENDED else wake_starts(now, report.begin)


def _timer(now: DecisionContext, report: r.TimerFired) -> Facts:
    if now.state.run.status in RUN_ENDED:
        return
    if now.state.run.status == "paused" and report.kind != "late":
        held = (report.kind, report.place, report.number)
        if _is_timer_current(now, *held, report.wall) and held not in now.state.run.held:
            yield e.TimerHeld(*held)
        return
    yield from fire_timer(now, report.kind, report.place, report.number, report.wall)


def fire_held_timer(now: DecisionContext, kind: str, key: str, number: int) -> Facts:
    """Fire a timer that was held back by a pause, if it is still current. It was due before."""
    yield from fire_timer(now, kind, key, number, LATEST)


def fire_timer(now: DecisionContext, kind: str, key: str, number: int, wall: datetime | None = None) -> Facts:
    """The consequences of a timer, if it is still current."""
    if _is_timer_current(now, kind, key, number, wall):
        yield from _TIMERS[kind](now, now.state.places.get(key))


def _is_timer_current(now: DecisionContext, kind: str, key: str, number: int, wall: datetime | None) -> bool:
    """Whether the run still waits for this timer, and it is due.

    `wall`: the time of the wall clock, for timers that go by it.
    """
    run, place = now.state.run, now.state.places.get(key)
    if kind == "loop":
        return False
    if kind == "run":
        return run.round == number and run.due is not None and run.due <= now.at and run.stop is None
    if kind == "late":
        return run.round == number and run.late_due is not None and run.late_due <= now.at
    if place is None:
        return False
    climb = place.climb
    statuses, counter, due = {
        "retry": (("backing_off",), place.attempt + 1, climb.due),
        "attempt": (("running",), place.attempt, place.due),
        "until": (("running",), place.attempt, place.due),
        "handler": (("handling",), place.attempt, None if climb.is_handler_late else climb.handler_due),
        "triage": (("pending_failed",), place.attempt, climb.parked_due),
        # Ready: entered while the run was paused, so it could not start.
        "deadline": (
            ("ready", "running"),
            place.visit,
            None if place.phase not in ("", WAITING) else deadline_of(now.state, place),
        ),
    }[kind]
    at = wall if kind == "until" and wall is not None else now.at
    return place.status in statuses and counter == number and due is not None and due <= at


def _attempt_due(now: DecisionContext, place: Place) -> Facts:
    """End an action of the engine: a wait is over, an approval has expired, a child run or an agent has timed out."""
    action = place.spec.action
    if action is None or place.phase:
        return
    found = traits_of(action)
    if found.is_timer:
        yield e.AttemptSucceeded(place.key, place.attempt)
    elif found.awaits_event:
        yield from end_without_event(now, place)
    elif found.calls_run:
        yield e.AttemptStopping(place.key, place.attempt, "timeout")
    elif holds_conversation(place.spec):
        yield e.AttemptStopping(place.key, place.attempt, "timeout")
        yield from stop_place(now, place)
    elif fill_params(action, place.bindings).get("default") == "approve":
        output = {"approved": True, "by": "timeout", "reason": "no answer before the timeout"}
        yield e.AttemptSucceeded(place.key, place.attempt, output)
    else:
        expired = make_failure(now, place, "APPROVAL_EXPIRED", "no answer before the timeout")
        yield e.AttemptFailed(place.key, place.attempt, expired)


def _handler_due(now: DecisionContext, place: Place) -> Facts:
    yield e.AttemptStopping(place.key, place.attempt, "handler_timeout")
    if place.child:
        yield from stop_place(now, now.state.places[place.child])


def _triage_due(now: DecisionContext, place: Place) -> Facts:
    """Apply the default verdict of the triage. A retry by default is granted once per visit."""
    policy = now.state.step(place.key).triage
    assert policy is not None
    # What could not be undone runs again only if somebody says so.
    is_asked = place.climb.parked_for == UNDO_FAILED
    wants_retry = policy.default == "retry" and place.climb.defaults_used == 0 and not is_asked
    verdict: Any = "retry" if wants_retry else "fail"
    yield e.StepClassified(
        place.key,
        place.attempt,
        verdict=verdict,
        reason="not classified before the timeout",
        by="timeout",
        is_default=True,
    )


def _deadline_due(now: DecisionContext, place: Place) -> Facts:
    """The deadline of the visit has passed. A worker ends its own task; everything else is ended here."""
    found = traits_of(place.spec.action)
    if place.phase == WAITING:
        yield from end_waiting(now, place, make_failure(now, place, "TIMEOUT", PAST_DEADLINE))
    elif place.status == "ready" or found.runs_nothing:
        yield e.AttemptFailed(place.key, place.attempt, make_failure(now, place, "TIMEOUT", PAST_DEADLINE))
    elif place.spec.action is None or holds_conversation(place.spec):
        yield e.AttemptStopping(place.key, place.attempt, "deadline")
        yield from stop_place(now, place)
    elif found.calls_run:
        yield e.AttemptStopping(place.key, place.attempt, "timeout")


def _run_time_up(now: DecisionContext, _: Place | None) -> Facts:
    found = failure("RUN_TIMEOUT", RUN_TOO_LONG, at=now.at)
    count = count_not_begun(now.state)
    yield e.RunStopping("timed_out", reason=RUN_TOO_LONG, failure=found, not_begun=count)


def _run_late(now: DecisionContext, _: Place | None) -> Facts:
    yield e.RunLate(now.state.run.late_after)


_TIMERS: dict[str, Callable[[DecisionContext, Any], Facts]] = {
    "retry": start_due_retry,
    "attempt": _attempt_due,
    "until": _attempt_due,
    "handler": _handler_due,
    "triage": _triage_due,
    "deadline": _deadline_due,
    "run": _run_time_up,
    "late": _run_late,
}

_HANDLERS: dict[type[r.Report], Callable[[DecisionContext, Any], Facts]] = {
    r.RunRequested: _run_requested,
    r.TaskStarted: _task_started,
    r.TaskEnded: _task_ended,
    r.CallsMade: _calls_made,
    r.LeaseExpired: _lease_expired,
    r.TaskInterrupted: _task_interrupted,
    r.ChildEnded: _child_ended,
    r.StartsDue: _starts_due,
    r.TimerFired: _timer,
    r.CancelRequested: _cancel,
    r.PauseRequested: _pause,
    r.ResumeRequested: _resume,
    r.RetryRequested: _retry,
    r.RoundRequested: _round_requested,
    r.Classified: _classified,
    r.ApprovalGiven: _approval,
    r.EventSent: receive_event,
}
