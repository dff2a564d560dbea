"""What went wrong in a run and what was done about it: a line for each step and item that ever failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, get_args

import msgspec

from mulligan.core.deciding.budgets import CODE as BUDGET_EXCEEDED
from mulligan.core.deciding.budgets import LIMITED, budgets_for
from mulligan.core.deciding.resource_usage import ran_short
from mulligan.core.evolve.revision import is_removed
from mulligan.core.model import events as e
from mulligan.core.model.failure import Failure
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.rejected_output import rejected_text
from mulligan.core.model.workflow import END
from mulligan.core.state.state import FailureRecord, State
from mulligan.core.state.verdict import is_handled
from mulligan.history.phrases import describe_failure, failure_label


class Trouble(msgspec.Struct):
    """A step or an item that failed at least once: its last failure, and what followed."""

    place: str
    failure: Failure | None = None
    retries: int = 0
    losses: int = 0
    has_handler_failed: bool = False
    verdict: str = ""


# Open: nobody dealt with it. Left: nobody did, and the run goes on or ends without it. Mended: what was to be done is
# done, by itself or by another. In the order in which one wants to read of them.
Fate = Literal["open", "left", "under_way", "mended"]


class Answered(msgspec.Struct, frozen=True):
    """A failure, and what was done about it."""

    place: str
    what: str
    answer: str
    fate: Fate
    # The rung of the ladder that dealt with it, or had the last word.
    rung: str = "converge"
    # It ran out of memory or time: `retry --adjust` gives it more.
    has_run_out: bool = False
    # The run that it called and that failed: what there is to read was written there.
    child_run_id: int | None = None
    # `validate` refused its output: that is what there is to read.
    has_refused_output: bool = False
    # Its code, with the exit code or signal of one that has it: failures of one kind are told together.
    kind: str = ""
    # A budget was spent: the limit that `retry --budget` has to raise, such as `cost` or `review.tokens`.
    spent_budget: str = ""

    @property
    def is_open(self) -> bool:
        return self.fate == "open"

    @property
    def step(self) -> str:
        return step_name(self.place)

    @property
    def is_item(self) -> bool:
        return self.place != self.step


class Account:
    """The troubles of one run, gathered from its log as it grows."""

    def __init__(self) -> None:
        # The first entry that was seen: whoever looks on later than the run began asks for those before.
        self.first_seq: int | None = None
        self._last_seq = 0
        self._troubles: dict[str, Trouble] = {}
        # Maps whose list was made here: what befell items before that befell others.
        self._listed: set[str] = set()

    def see(self, entries: Iterable[e.Entry]) -> None:
        """Take in a piece of the log. After a gap, as if one had looked on only since then: the log has the rest."""
        for entry in entries:
            if self.first_seq is None or entry.seq != self._last_seq + 1:
                self.first_seq = entry.seq
                self._troubles, self._listed = {}, set()
            self._last_seq = entry.seq
            if isinstance(entry.fact, _TROUBLES):
                self._note(entry.fact)
            elif isinstance(entry.fact, e.MapExpanded) and entry.fact.items is not None:
                self._listed.add(entry.fact.place)
                self._forget_items({entry.fact.place})

    def see_before(self, entries: Iterable[e.Entry]) -> None:
        """Take in what was written before the first piece that was seen."""
        later, self._troubles, listed = self._troubles, {}, set(self._listed)
        self.first_seq = None
        self.see(entries)
        self._forget_items(listed)
        for place, trouble in later.items():
            before = self._troubles.pop(place, None)
            if before is not None:
                trouble.retries += before.retries
                trouble.losses += before.losses
                trouble.failure = trouble.failure or before.failure
            self._troubles[place] = trouble

    def _forget_items(self, steps: set[str]) -> None:
        for place in [place for place in self._troubles if "[" in place and step_name(place) in steps]:
            del self._troubles[place]

    def _note(self, fact: e.Fact) -> None:
        name = getattr(fact, "place", "") or getattr(fact, "step", "")
        owner = _owner(name)
        if not owner:
            return
        trouble = self._troubles.setdefault(owner, Trouble(owner))
        if isinstance(fact, e.AttemptFailed | e.ResultRejected | e.StepFailed | e.ItemFailed | e.UndoFailed):
            trouble.failure = fact.failure
        elif isinstance(fact, e.RetryScheduled):
            trouble.retries += 1
        elif isinstance(fact, e.AttemptLost):
            trouble.losses += 1
        elif isinstance(fact, e.HandlerFailed):
            trouble.has_handler_failed = True
        elif isinstance(fact, e.StepClassified):
            who = "nobody decided in time: the default is" if fact.is_default else f"{fact.by or 'someone'} said"
            trouble.verdict = f"{who} {fact.verdict}"

    def answers(self, state: State) -> list[Answered]:
        """What became of each, as the run stands: the open ones first, and a step before its items."""
        records = {record.step: record for record in state.failures}
        told = [_answered(state, trouble, records.get(trouble.place)) for trouble in self._troubles.values()]
        return sorted(told, key=lambda one: (FATES.index(one.fate), one.is_item))


class Group(msgspec.Struct, frozen=True):
    """Failures of one kind of which the same became: of steps, or of the items of one step."""

    members: list[Answered]

    @property
    def first(self) -> Answered:
        return self.members[0]

    @property
    def what(self) -> str:
        """What happened to all of them: in full where that is the same."""
        return self.first.what if len({one.what for one in self.members}) == 1 else self.first.kind


# So few are told one by one, whatever they have in common; and so many make a group.
_SINGLE_MAX, _GROUP_MIN = 8, 3


def grouped(answers: list[Answered]) -> list[Group]:
    """Many failures by kind, in the order of the first of each; of few, and of what is rare, each by itself."""
    groups: dict[tuple[str, ...], list[Answered]] = {}
    for one in answers:
        alike = (one.fate, one.kind, one.answer, one.step if one.is_item else "")
        groups.setdefault(alike if len(answers) > _SINGLE_MAX else (one.place,), []).append(one)
    return [
        Group(some)
        for members in groups.values()
        for some in ([members] if len(members) >= _GROUP_MIN else [[one] for one in members])
    ]


FATES: tuple[Fate, ...] = get_args(Fate)
_TROUBLES = (
    *(e.AttemptFailed, e.ResultRejected, e.AttemptLost, e.StepFailed, e.ItemFailed, e.UndoFailed),
    *(e.RetryScheduled, e.HandlerFailed, e.StepClassified),
)


def _owner(key: str) -> str:
    """The step or item that a place belongs to; "" for what runs on its behalf: handlers, scripts, checks."""
    owner, _, command = key.partition(".")
    is_own = not command or command.isdigit() or command.startswith("undo@")
    return owner if is_own else ""


def _answered(state: State, trouble: Trouble, record: FailureRecord | None) -> Answered:
    failure = trouble.failure
    found = describe_failure(failure) if failure else "its worker was lost"
    ending, fate = _ending(state, trouble, record)
    rung = "converge" if fate == "open" else _rung(state, trouble, record)
    has_run_out = failure is not None and ran_short(failure)
    answer = ", ".join([*_tried(trouble), ending])
    has_refused_output = failure is not None and bool(rejected_text(failure))
    return Answered(
        place=trouble.place,
        what=found,
        answer=answer,
        fate=fate,
        rung=rung,
        has_run_out=has_run_out,
        child_run_id=_child(state, trouble),
        has_refused_output=has_refused_output,
        kind=_kind(failure),
        spent_budget=_spent_budget(state, trouble),
    )


def _spent_budget(state: State, trouble: Trouble) -> str:
    """The limit that kept an agent from starting, of the step or of a run that it called."""
    step, found = step_name(trouble.place), trouble.failure
    if found is None or is_removed(state, step):
        return ""
    if (action := state.places[step].spec.action) is not None and action.kind == "workflow":
        return _spent_below(state, step, found)
    return spent_budget(step, found.code, found.details)


def _spent_below(state: State, step: str, failure: Failure) -> str:
    """The same where the agent was one of a called run, which may spend what its caller has left."""
    said = (one.details.get("what") for one in (failure, *failure.cause) if one.code == BUDGET_EXCEEDED)
    limits = [limit for limit in said if limit in LIMITED]
    for account in budgets_for(state, step):
        for limit in limits:
            most = account.budget.limits.get(limit)
            if most is not None and (getattr(account.spent, limit) or 0) >= most:
                return {"step": f"{step}.{limit}", "run": limit}.get(account.owner, "")
    return ""


def spent_budget(place: str, code: str, details: Mapping[str, Any]) -> str:
    """The limit that kept an agent from starting, as `--budget` names it; "" where it was no budget of this run."""
    # A group fails as one of its steps did, and that budget was one of the group's own run.
    if code != BUDGET_EXCEEDED or details.get("what") not in LIMITED or "failed_step" in details:
        return ""
    whose, limit = details.get("budget"), details["what"]
    return f"{step_name(place)}.{limit}" if whose == "step" else limit if whose == "run" else ""


def _kind(failure: Failure | None) -> str:
    if failure is None:
        return "WORKER_LOST"
    return failure_label(failure) if failure.code in ("EXIT_NONZERO", "SIGNALED") else failure.code


def _child(state: State, trouble: Trouble) -> int | None:
    """The run that was called. What stands there is not believed where a step may have written it."""
    failure, place = trouble.failure, state.places.get(trouble.place)
    is_group = place is not None and place.spec.action is not None and place.spec.action.kind == "workflow"
    is_ours = failure is not None and (failure.code == "CHILD_FAILED" or is_group)
    found = failure.details.get("child_run_id") if failure is not None and is_ours else None
    return found if type(found) is int else None


def _rung(state: State, trouble: Trouble, record: FailureRecord | None) -> str:
    """Which rung of the ladder dealt with a failure: the highest that it had to climb."""
    if record is not None and not record.is_closed:
        return "route" if record.target else "converge"
    if state.places[trouble.place].recovered_by:
        return "handle"
    return "triage" if trouble.verdict else "retry" if trouble.retries or trouble.losses else "converge"


def _tried(trouble: Trouble) -> Iterator[str]:
    if trouble.losses and trouble.failure:
        yield "lost its worker" + times(trouble.losses)
    if trouble.retries:
        yield "retried" + times(trouble.retries)
    if trouble.has_handler_failed:
        yield "its handler failed too"
    if trouble.verdict:
        yield trouble.verdict


def times(number: int) -> str:
    """How often, where it was more than once: ` twice`, ` 3 times`."""
    return {1: "", 2: " twice"}.get(number, f" {number} times")


def _ending(state: State, trouble: Trouble, record: FailureRecord | None) -> tuple[str, Fate]:
    """How it came out, in words, and what that means for who reads of it."""
    place = state.places[trouble.place]
    if trouble.failure is not None and trouble.failure.code == "UNDO_FAILED":
        return "could not be undone", "open"
    if is_removed(state, step_name(trouble.place)):
        return REMOVED
    if place.recovered_by:
        return RECOVERED.get(place.recovered_by, f"recovered by its {place.recovered_by} handler"), "mended"
    if place.role == "item" and place.status == "failed":
        is_spared = state.places[place.parent].status == "completed"
        return ("its step completed without it", "left") if is_spared else ("it fails its step", "open")
    if record is not None and not record.is_closed and place.has_ended:
        return routed(state, record)
    return ENDINGS[place.status]


REMOVED: tuple[str, Fate] = ("no longer in the file", "left")
RECOVERED = {"rerun": "its handler ran and then it completed", "recovery": "recovered by its handler"}
ENDINGS: dict[str, tuple[str, Fate]] = {
    "completed": ("then completed", "mended"),
    "failed": ("then failed", "left"),
    "cancelled": ("then cancelled", "left"),
    "skipped": ("then skipped", "left"),
    "pending_failed": ("parked for a person to decide", "open"),
    "backing_off": ("to be tried again", "under_way"),
    "handling": ("its handler runs", "under_way"),
    "running": ("runs again", "under_way"),
    "ready": ("about to run again", "under_way"),
    "waiting": ("about to run again", "under_way"),
}


def routed(state: State, record: FailureRecord) -> tuple[str, Fate]:
    """What became of a failed visit that no later round has given another chance."""
    if record.is_allowed:
        return "allowed to fail", "left"
    if not record.target and state.run.status == "completed":
        return "not handled, and the run's end let it pass", "left"
    if not record.target:
        return ("not handled: it fails the run" if record.step != END else "it fails the run"), "open"
    handled, status = is_handled(state, record), _became(state, record)
    if handled and status == "failed":
        return f"routed to '{record.target}', which failed and was handled in turn", "mended"
    if handled:
        return f"routed to '{record.target}', which completed{_THEN.get(record.then, '')}", "mended"
    if handled is None:
        return f"routed to '{record.target}', which is {status}", "under_way"
    became = f"routed to '{record.target}', which {'failed' if status == 'failed' else f'was {status}'}: not handled"
    return (f"{became}, and the run's end let it pass", "left") if state.run.status == "completed" else (became, "open")


def _became(state: State, record: FailureRecord) -> str:
    """How the visit stands that a failure was sent to."""
    past = state.past.get((record.target, record.target_visit))
    return past.status if past is not None else state.places[record.target].status


_THEN = {"continue": " and stands in for it", "rerun": ", and it went again"}
