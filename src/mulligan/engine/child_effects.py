"""What a turn does about the runs that its steps have started: effects of the core that become parts of its commit."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

from mulligan.core.effects import effects as fx
from mulligan.core.effects.child_runs import round_request, run_request, workflow_of_child
from mulligan.core.evolve.revision import plain_from_json
from mulligan.core.model import reports as r
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import Workflow, encode, version, with_callers_secrets
from mulligan.core.state.scope import Evaluator, fill_params
from mulligan.core.state.state import State
from mulligan.engine.pending_turn import PendingTurn
from mulligan.errors import ExpressionFailed, InputInvalid
from mulligan.language.input_values import check_recorded_inputs
from mulligan.ports import ChildReport, NewRun


class Parent(Protocol):
    """The run whose turn it is."""

    run_id: int
    state: State
    evaluator: Evaluator


def start_child(driver: Parent, pending: PendingTurn, effect: fx.StartChild, now: datetime) -> None:
    """Create the child run in the same commit. Its inputs come from expressions and are checked here."""
    called = _called_workflow(driver, pending, effect)
    if called is None:
        return
    child, inputs = called
    data = encode(with_callers_secrets(child, driver.state.workflow))
    request = run_request(driver.state, effect, now, child, inputs, version(data))
    pending.children.append(
        NewRun(
            workflow=data,
            version=request.version,
            name=child.name,
            request=request,
            parent_place=effect.place,
            parent_attempt=effect.attempt,
        )
    )


def _called_workflow(
    driver: Parent, pending: PendingTurn, effect: fx.StartChild | fx.ContinueChild
) -> tuple[Workflow, dict[str, Any]] | None:
    """The definition and the inputs of a child run; None if they do not fit: then the attempt fails in this turn."""
    place = driver.state.places[effect.place]
    assert place.spec.action is not None
    params = fill_params(place.spec.action, place.bindings)
    try:
        child = workflow_of_child(driver.state, place)
        return child, check_recorded_inputs(child, params.get("inputs") or {}, driver.evaluator)
    except (InputInvalid, ExpressionFailed) as error:
        outcome = Outcome(code="INPUT_INVALID", message=error.message)
        pending.next.append(r.TaskEnded(driver.state.run.at, effect.place, effect.attempt, outcome))
        return None


def continue_child(driver: Parent, pending: PendingTurn, effect: fx.ContinueChild, now: datetime) -> None:
    """Ask the child run for the round that the attempt waits for, in the same commit: so it is asked once."""
    revised: r.Revised | None = None
    if driver.state.run.revision is not None:
        # Its definition may be among those that were corrected. It keeps its own if that is the same.
        called = _called_workflow(driver, pending, effect)
        if called is None:
            return
        data = encode(with_callers_secrets(called[0], driver.state.workflow))
        revised = r.Revised(version(data), plain_from_json(data), called[1], may_rename=True)
    report = round_request(driver.state, effect, now, revised)
    pending.outgoing.append((effect.run_id, report))


def stop_child(driver: Parent, pending: PendingTurn, effect: fx.StopChild, now: datetime) -> None:
    report = r.CancelRequested(now, f"run {driver.run_id}", "its parent asked it to end", effect.now)
    if effect.run_id:
        # It may not have opened its round yet: its row says that it has ended.
        pending.outgoing.append((effect.run_id, report))
    else:
        pending.child_reports.append(ChildReport(report, effect.place, effect.attempt))


def pause_children(driver: Parent, pending: PendingTurn, effect: fx.PauseChildren, now: datetime) -> None:
    report = r.PauseRequested(now, f"run {driver.run_id}", "its parent was paused")
    pending.child_reports.append(ChildReport(report))
    pending.outgoing += [(run_id, report) for run_id in effect.continued]


def resume_children(driver: Parent, pending: PendingTurn, effect: fx.ResumeChildren, now: datetime) -> None:
    report = r.ResumeRequested(now, f"run {driver.run_id}")
    pending.child_reports.append(ChildReport(report))
    pending.outgoing += [(run_id, report) for run_id in effect.continued]
