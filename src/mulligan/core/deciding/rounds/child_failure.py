"""The failure of a step whose child run did not complete: it says what went wrong inside, and where."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from mulligan.core.model.actions import is_group, traits_of
from mulligan.core.model.failure import Failure, failure
from mulligan.core.model.reports import ChildEnded
from mulligan.core.model.text.failure_line import most_useful_line
from mulligan.core.model.text.formatting import escape_unprintable, single_line, strip_control_characters
from mulligan.core.model.workflow import END, Action
from mulligan.core.state.state import Place, State
from mulligan.core.state.verdict import unhandled

CHILD_FAILED = "CHILD_FAILED"
# The detail that names the steps of a child run whose undo has failed.
UNDO_FAILED = "undo_failed"
# How much of the message inside is repeated. All of it is in the cause.
_LINE_CHARS_MAX = 200


def failures_of_child(state: State) -> tuple[Failure, ...]:
    """What failed a child run: the failures that nothing handled, and that of its `end`."""
    end = state.places.get(END)
    of_end = (end.failure,) if end is not None and end.status == "failed" and end.failure is not None else ()
    return (*(record.failure for record in unhandled(state)), *of_end)


def child_end(state: State, place: str, attempt: int, at: datetime) -> ChildEnded:
    """What the end of a round is for the parent: for the attempt that asked for the round, or called the run first."""
    run = state.run
    status: Any = run.status
    return ChildEnded(
        at=at,
        place=place,
        attempt=run.called_attempt or attempt,
        child_run_id=run.run_id,
        status=status,
        outputs=run.outputs,
        failures=failures_of_child(state),
        usage=(run.spent - run.spent_before).as_usage,
        reason=run.reason,
        round=run.round,
        undo_failed=undo_failed_in(state),
    )


def undo_failed_in(state: State) -> tuple[str, ...]:
    """The steps of a child run whose undo has failed, or that of a step of a child run of theirs."""
    return tuple(
        step.key
        for step in state.steps()
        if step.undo_failed or (step.status in ("failed", "cancelled") and undo_failed_below(state, step))
    )


def undo_failed_below(state: State, step: Place) -> bool:
    """Whether a child run that a step or an item of it has called did not complete, nor undo all that it did."""
    if _left_undone(step) or undo_failed_in_child(step, step.failure):
        return True
    if step.items is None or not any(traits_of(command.action).calls_run for command in state.step(step.key).do):
        return False
    items = [item for item in state.items_of(step) if item is not None]
    failures = (item.failure for item in items if item.status == "failed" and item.failure is not None)
    return any(map(_left_undone, items)) or any(found.details.get(UNDO_FAILED) for found in failures)


def _left_undone(place: Place) -> bool:
    return place.last_child is not None and place.last_child.undo_failed


def undo_failed_in_child(place: Place, found: Failure | None) -> bool:
    """Whether a place failed because its child run did, and that could not undo all that it did."""
    return traits_of(place.spec.action).calls_run and found is not None and bool(found.details.get(UNDO_FAILED))


def child_failure(action: Action | None, report: ChildEnded) -> Failure:
    """CHILD_FAILED with the failures of the child, critical if one of them is.

    A group fails like its last failed step, so that rules match it.
    """
    details: dict[str, Any] = {"child_run_id": report.child_run_id}
    if report.undo_failed:
        details[UNDO_FAILED] = list(report.undo_failed)
    if is_group(action) and report.failures:
        last = report.failures[-1]
        return msgspec.structs.replace(
            last, cause=report.failures, details={**last.details, **details, "failed_step": last.step}
        )
    message = f"child run {report.child_run_id} {report.status}{_why(report)}"
    is_critical = any(one.severity == "critical" for one in report.failures)
    severity = "critical" if is_critical else "error"
    return failure(CHILD_FAILED, message, cause=report.failures, details=details, severity=severity)


def _why(report: ChildEnded) -> str:
    """` at 'load/fetch': EXIT_NONZERO 3: no such table`; otherwise the reason that the run gives for its status."""
    if not report.failures or report.status != "failed":
        return f": {_line(report.reason)}" if report.reason else ""
    chain = tuple(_chain(report.failures[0]))
    # The failure of the item that follows names the step as well.
    path = "/".join(_name(one) for one in chain if one.step and not _is_of_items(one))
    notes = [one.message for one in chain if _is_of_items(one)]
    more = len(report.failures) - 1
    notes += [f"and {more} more {'failure' if more == 1 else 'failures'}"] if more else []
    at = f" at '{path}'" if path else ""
    note = f" ({'; '.join(notes)})" if notes else ""
    return f"{at}: {failure_words(chain[-1])}{note}"


def _chain(outer: Failure) -> Iterator[Failure]:
    """The failure; where it is that of a child run or of items, also the first one inside it, down to the last."""
    yield outer
    if outer.cause and (_is_of_items(outer) or "child_run_id" in outer.details):
        # A group has the code and the message of its last failure.
        yield from _chain(outer.cause[-1 if "failed_step" in outer.details else 0])


def _is_of_items(one: Failure) -> bool:
    return one.code == "ITEMS_FAILED" and bool(one.cause)


def _name(one: Failure) -> str:
    return one.step if one.item is None else f"{one.step}[{one.item}]"


def failure_words(inner: Failure) -> str:
    """Its code, its exit code if that is not 0, and one line of its message."""
    figure = f" {inner.exit_code}" if inner.exit_code else ""
    text = inner.message
    line = _line(text.lstrip().partition("\n")[0] if inner.is_raised else most_useful_line(text))
    says_more = line and line not in (f"exit code {inner.exit_code}", inner.code)
    return f"{_line(inner.code)}{figure}{f': {line}' if says_more else ''}"


def _line(text: str) -> str:
    line = escape_unprintable(single_line(strip_control_characters(text)).strip())
    return line if len(line) <= _LINE_CHARS_MAX else f"{line[: _LINE_CHARS_MAX - 1]}…"
