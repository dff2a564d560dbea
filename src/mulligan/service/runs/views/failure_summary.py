"""The failures of a run and how each was handled: one entry for each step and item that ever failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from mulligan.core.deciding.agents.budgets import CODE as BUDGET_EXCEEDED
from mulligan.core.deciding.agents.budgets import LIMITED, TOOL_CALLS, budgets_for
from mulligan.core.deciding.workers.resource_usage import ran_short
from mulligan.core.evolve.revision import is_removed
from mulligan.core.model import events as e
from mulligan.core.model.actions import traits_of
from mulligan.core.model.failure import Failure
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.rejected_output import rejected_text
from mulligan.core.state.state import FailureRecord, State
from mulligan.history.item_names import PlaceNames
from mulligan.history.phrases import UNDO_FAILED, describe_failure, failure_label
from mulligan.history.route_outcomes import (
    ENDINGS,
    LOST,
    NOT_CALLED,
    REMOVED,
    UNDONE_LATER,
    Ending,
    FailureOutcome,
    describe_recovery,
    describe_route_outcome,
    format_times,
)


class FailedPlace(msgspec.Struct):
    """A step or an item that failed at least once: its last failure, and what followed."""

    place: str
    failure: Failure | None = None
    retries: int = 0
    losses: int = 0
    has_handler_failed: bool = False
    verdict: str = ""
    has_failed_undo: bool = False


class FailureLine(msgspec.Struct, frozen=True):
    """A failure in the summary of a run, and how it was handled."""

    place: str
    what: str
    answer: str
    outcome: FailureOutcome
    # The rung of the ladder that handled it, or the last one.
    rung: str = "converge"
    # It ran out of memory or time: `retry --adjust` gives it more.
    has_run_out: bool = False
    # The child run that failed, which has the logs.
    child_run_id: int | None = None
    # `validate` rejected its output, which says more than the log.
    has_refused_output: bool = False
    # Its code, with its exit code or signal: failures of one kind are grouped.
    kind: str = ""
    # The spent budget that `retry --budget` has to raise, such as `cost` or `review.tokens`.
    spent_budget: str = ""
    # If it is of a child run: that run, and the place that called it, such as `load/`.
    run_id: int = 0
    above: str = ""
    # The place as people know it: `load[west]`.
    name: str = ""

    @property
    def is_unhandled(self) -> bool:
        return self.outcome == FailureOutcome.UNHANDLED

    @property
    def step(self) -> str:
        return step_name(self.place)

    @property
    def is_item(self) -> bool:
        return self.place != self.step


class FailureSummary:
    """The failed_places of one run, gathered from its log as it grows."""

    def __init__(self) -> None:
        # The first entry seen, so that the earlier ones can be added later.
        self.first_seq: int | None = None
        self._last_seq = 0
        self._failed_places: dict[str, FailedPlace] = {}
        # Maps that were expanded since: earlier failures are of other items.
        self._listed: set[str] = set()

    def update(self, entries: Iterable[e.Entry]) -> None:
        """Take in a part of the log. After a gap, only the part behind it counts."""
        for entry in entries:
            if self.first_seq is None or entry.seq != self._last_seq + 1:
                self.first_seq = entry.seq
                self._failed_places, self._listed = {}, set()
            self._last_seq = entry.seq
            if type(entry.fact) in _FAILURE_FACTS:
                self._record(entry.fact)
            elif isinstance(entry.fact, e.MapExpanded) and entry.fact.items is not None:
                self._listed.add(entry.fact.place)
                self._forget_items({entry.fact.place})

    def skip(self, entries: Sequence[e.Entry]) -> None:
        """Take in a part of the log, without gaps, in which nothing has failed."""
        if self.first_seq is None or entries[0].seq != self._last_seq + 1:
            self.update(entries[:1])
        self._last_seq = entries[-1].seq

    def add_earlier(self, entries: Iterable[e.Entry]) -> None:
        """Take in the entries before the first part."""
        later, self._failed_places, listed = self._failed_places, {}, set(self._listed)
        self.first_seq = None
        self.update(entries)
        self._forget_items(listed)
        for place, failed in later.items():
            before = self._failed_places.pop(place, None)
            if before is not None:
                failed.retries += before.retries
                failed.losses += before.losses
                failed.failure = failed.failure or before.failure
            self._failed_places[place] = failed

    def _forget_items(self, steps: set[str]) -> None:
        for place in [place for place in self._failed_places if "[" in place and step_name(place) in steps]:
            del self._failed_places[place]

    def _record(self, fact: e.Fact) -> None:
        name = getattr(fact, "place", "") or getattr(fact, "step", "")
        owner = _owner_of(name)
        if not owner:
            return
        failed = self._failed_places.setdefault(owner, FailedPlace(owner))
        if isinstance(fact, e.AttemptFailed | e.ResultRejected | e.StepFailed | e.ItemFailed | e.UndoFailed):
            failed.failure = fact.failure
            failed.has_failed_undo = failed.has_failed_undo or isinstance(fact, e.UndoFailed)
        elif isinstance(fact, e.RetryScheduled):
            failed.retries += 1
        elif isinstance(fact, e.AttemptLost):
            failed.losses += 1
        elif isinstance(fact, e.HandlerFailed):
            failed.has_handler_failed = True
        elif isinstance(fact, e.StepClassified):
            by = "no decision in time, default applied:" if fact.is_default else f"{fact.by or 'a person'} decided:"
            failed.verdict = f"{by} {fact.verdict}"

    def lines(self, state: State) -> list[FailureLine]:
        """A line for each failure so far: unhandled ones first, and a step before its items."""
        records = {record.step: record for record in state.failures}
        names = PlaceNames()
        lines = [_make_line(state, failed, records.get(failed.place), names) for failed in self._failed_places.values()]
        return sorted(lines, key=lambda one: (OUTCOMES.index(one.outcome), one.is_item))


class FailureGroup(msgspec.Struct, frozen=True):
    """Failures of one kind with the same outcome: of steps, or of the items of one step."""

    members: list[FailureLine]

    @property
    def first(self) -> FailureLine:
        return self.members[0]

    @property
    def what(self) -> str:
        """The failure in full if it is the same for all, otherwise its kind."""
        return self.first.what if len({one.what for one in self.members}) == 1 else self.first.kind


# Up to this many are listed one by one; and the least size of a group.
_SINGLE_MAX, _GROUP_MIN = 8, 3


def group_failures(answers: list[FailureLine]) -> list[FailureGroup]:
    """Group many failures by kind, in the order of the first of each; few or rare ones stay single."""
    groups: dict[tuple[str, ...], list[FailureLine]] = {}
    for one in answers:
        alike = (one.outcome, one.kind, one.answer, one.step if one.is_item else "")
        groups.setdefault(alike if len(answers) > _SINGLE_MAX else (one.place,), []).append(one)
    return [
        FailureGroup(some)
        for members in groups.values()
        for some in ([members] if len(members) >= _GROUP_MIN else [[one] for one in members])
    ]


OUTCOMES = list(FailureOutcome)
_FAILURE_FACTS = frozenset(
    {
        *(e.AttemptFailed, e.ResultRejected, e.AttemptLost, e.StepFailed, e.ItemFailed, e.UndoFailed),
        *(e.RetryScheduled, e.HandlerFailed, e.StepClassified),
    }
)


def _owner_of(key: str) -> str:
    """The step or item that a place belongs to; "" for handlers, scripts and checks."""
    owner, _, command = key.partition(".")
    is_own = not command or command.isdigit() or command.startswith("undo@")
    return owner if is_own else ""


def _make_line(state: State, failed: FailedPlace, record: FailureRecord | None, names: PlaceNames) -> FailureLine:
    failure = failed.failure
    ending, outcome = _ending(state, failed, record)
    return FailureLine(
        place=failed.place,
        what=describe_failure(failure) if failure else LOST,
        answer=", ".join([*_steps_taken(failed), ending]),
        outcome=outcome,
        rung="converge" if outcome == FailureOutcome.UNHANDLED else _rung(state, failed, record),
        has_run_out=failure is not None and ran_short(failure),
        child_run_id=_child(state, failed),
        has_refused_output=failure is not None and bool(rejected_text(failure)),
        kind=_kind(failure),
        spent_budget=_spent_budget(state, failed),
        name=names.name(state, failed.place),
    )


def _spent_budget(state: State, failed: FailedPlace) -> str:
    """The limit that kept an agent of the step or of its child run from starting."""
    step, found = step_name(failed.place), failed.failure
    if found is None or is_removed(state, step):
        return ""
    if traits_of(state.places[step].spec.action).calls_run:
        return _spent_below(state, step, found)
    return spent_budget(step, found.code, found.details)


def _spent_below(state: State, step: str, failure: Failure) -> str:
    """The same for an agent of a child run, which may spend what its caller has left."""
    said = (one.details.get("what") for one in (failure, *failure.cause) if one.code == BUDGET_EXCEEDED)
    limits = [limit for limit in said if limit in (*LIMITED, TOOL_CALLS)]
    for account in budgets_for(state, step):
        for limit in limits:
            most = account.budget.limits.get(limit)
            if most is not None and (getattr(account.spent, limit) or 0) >= most:
                result: str = {"step": f"{step}.{limit}", "run": limit}.get(account.owner, "")
                return result
    return ""


def spent_budget(place: str, code: str, details: Mapping[str, Any]) -> str:
    """The limit that kept an agent from starting, as `--budget` names it; "" if it is not a budget of this run."""
    # A group fails with the failure of its step, and that budget belongs to the run of the group.
    if code != BUDGET_EXCEEDED or details.get("what") not in (*LIMITED, TOOL_CALLS) or "failed_step" in details:
        return ""
    whose, limit = details.get("budget"), details["what"]
    return f"{step_name(place)}.{limit}" if whose == "step" else limit if whose == "run" else ""


def _kind(failure: Failure | None) -> str:
    if failure is None:
        return "WORKER_LOST"
    return failure_label(failure) if failure.code in ("EXIT_NONZERO", "SIGNALED") else failure.code


def _child(state: State, failed: FailedPlace) -> int | None:
    """The child run that failed. Details that a step may have written are not trusted."""
    failure, place = failed.failure, state.places.get(failed.place)
    is_group = place is not None and traits_of(place.spec.action).calls_run
    is_ours = failure is not None and (failure.code == "CHILD_FAILED" or is_group)
    found = failure.details.get("child_run_id") if failure is not None and is_ours else None
    return found if type(found) is int else None


def _rung(state: State, failed: FailedPlace, record: FailureRecord | None) -> str:
    """The rung of the ladder that handled a failure."""
    if record is not None and not record.is_closed:
        return "route" if record.target else "converge"
    place = state.places.get(failed.place)
    if place is not None and place.recovered_by:
        return "handle"
    return "triage" if failed.verdict else "retry" if failed.retries or failed.losses else "converge"


def _steps_taken(failed: FailedPlace) -> Iterator[str]:
    if failed.losses and failed.failure:
        yield "lost its worker" + format_times(failed.losses)
    if failed.retries:
        yield "retried" + format_times(failed.retries)
    if failed.has_handler_failed:
        yield "its handler also failed"
    if failed.verdict:
        yield failed.verdict


def _ending(state: State, failed: FailedPlace, record: FailureRecord | None) -> Ending:
    """How it ended, in words, and its outcome."""
    step = step_name(failed.place)
    if step in state.dropped and step not in state.places:
        return NOT_CALLED
    place = state.places[failed.place]
    if place.undo_failed:
        return UNDO_FAILED, FailureOutcome.UNHANDLED
    if failed.has_failed_undo and place.is_undone:
        return UNDONE_LATER
    if is_removed(state, step):
        return REMOVED
    if place.recovered_by:
        return describe_recovery(place.recovered_by)
    if place.role == "item" and place.status == "failed":
        if state.places[place.parent].status == "completed":
            return "its step completed without it", FailureOutcome.ALLOWED
        return "its step fails", FailureOutcome.UNHANDLED
    if record is not None and not record.is_closed and place.has_ended:
        return describe_route_outcome(state, record)
    return ENDINGS[place.status]
