"""The retry of a child run: a round of the run at the top, in which each run down to the child gets its next round."""

from __future__ import annotations

from mulligan.core.model.event_types import ChildRound
from mulligan.core.model.place_keys import lasting_key, step_name
from mulligan.core.model.reports import RetryRequested
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import MulliganError, NothingToRetry, Refused, RunNotFinished
from mulligan.ports import RunRecord
from mulligan.service.runs.changes.corrections import plan_next_round
from mulligan.service.runs.changes.preflight import stale_of_round
from mulligan.service.runs.stored.run_reader import RunReader


def refuse_retry_of_child(reader: RunReader, record: RunRecord, *, has_file: bool) -> None:
    """Refuse to retry a child run while its tree goes on, after it has completed, or with a corrected file."""
    root = reader.record(record.root_run_id)
    if root.status not in RUN_ENDED:
        raise RunNotFinished(
            f"run {record.run_id} is part of run {root.run_id}, which is {root.status}; it can be retried after that "
            "has ended",
            hint=f"to stop it: mulligan cancel {root.run_id}",
        )
    if record.status == "completed":
        raise NothingToRetry(
            f"run {record.run_id} completed, so there is nothing to retry",
            hint=f"to run what failed in run {root.run_id} again: mulligan retry {root.run_id}",
        )
    if has_file and root.status == "completed":
        raise NothingToRetry(
            f"run {record.run_id} is part of run {root.run_id}, which completed, so there is nothing to retry",
            hint=f"to go on from one of its events in a new run: mulligan fork {root.run_id} --at EVENT",
        )
    if has_file:
        raise Refused(
            f"run {record.run_id} is a child of run {record.parent_run_id}: that run decides which file it uses",
            hint=f"give the corrected file of that one: mulligan retry {root.run_id} --file FILE",
        )


def request_from_top(reader: RunReader, record: RunRecord, report: RetryRequested) -> RetryRequested:
    """The request to the run at the top that gives a child run the round of `report`; refused if it would not."""
    while record.parent_run_id is not None:
        parent = reader.record(record.parent_run_id)
        state = reader.state(parent.run_id)
        asked = ChildRound(
            record.parent_place,
            record.run_id,
            record.round + 1,
            from_start=report.from_start,
            from_step=report.from_step,
            items=report.items,
            adjust=report.adjust,
            peaks=report.peaks,
            stale=report.stale,
            budgets=report.budgets,
            child=report.child,
        )
        _refuse_other_child(state, record)
        report = RetryRequested(
            at=report.at,
            by=report.by,
            reason=report.reason,
            stale=stale_of_round(reader.home, state, "", keep_completed=report.keep_completed),
            keep_completed=report.keep_completed,
            child=asked,
            force=report.force,
        )
        # On a copy: a run in between is asked by the one above it.
        plan_next_round(state.copy(), report)
        record = parent
    return report


def _refuse_other_child(state: State, record: RunRecord) -> None:
    """Refuse a child run that the place which called it will not continue."""
    place = state.places.get(lasting_key(record.parent_place))
    last = None if place is None else place.last_child
    if last is not None and (last.run_id, last.round) == (record.run_id, record.round):
        return
    step, parent = step_name(record.parent_place), state.run.run_id
    refusal: MulliganError
    if last is not None:
        refusal = NothingToRetry(
            f"run {last.run_id} replaced run {record.run_id} in step '{step}' of run {parent}",
            hint=f"retry that one: mulligan retry {last.run_id}",
        )
    elif state.run.status == "completed" or (place is not None and place.status == "completed"):
        refusal = NothingToRetry(
            f"run {record.run_id} cannot be retried: step '{step}' of run {parent} is "
            f"{place.status if place is not None else 'gone'}",
            hint=f"to run it again with the steps after it: mulligan fork {parent} --from {step}",
        )
    else:
        refusal = Refused(
            f"run {record.run_id} cannot be continued: run {parent} does not wait for it any more",
            hint=f"retry that one, which may start a new child run: mulligan retry {parent}",
        )
    raise refusal
