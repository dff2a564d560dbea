"""The notices of a turn: which of its facts are announced, to whom, and the key of each notice.

    needs_person  a step is parked and no agent has decided about it, an approval is asked for, or the run was paused
                  because of a bug in Mulligan
    failed        the round has ended as failed
    degraded      it has completed, and a failure was recovered, handled or allowed
    recovered     it has completed after at least one failure, in this round or an earlier one
    completed     it has completed
    late          it lasts longer than a rule allows

A target gets one notice of a fact, under the first of these kinds that one of its rules names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from mulligan.core.model import events as e
from mulligan.core.model.actions import traits_of
from mulligan.core.model.workflow import NoticeKind, NoticeRule
from mulligan.core.state.notice_rules import notice_rules
from mulligan.core.state.state import State

# The name in which the engine pauses a run that a bug keeps from continuing.
ENGINE = "engine"
_NOTABLE = frozenset(
    {e.RunCompleted, e.RunFailed, e.RunLate, e.RunPaused, e.StepParked, e.TriageSuggested, e.AttemptStarted}
)


class DueNotice(msgspec.Struct, frozen=True):
    """A notice to be written with the fact that it is about."""

    kind: NoticeKind
    target: str
    entry: e.Entry
    key: str


def due_notices(state: State, entries: Iterable[e.Entry]) -> list[DueNotice]:
    """The notices of a turn that was applied to the state, in the order of its facts."""
    rules = notice_rules(state)
    if not rules:
        return []
    return [
        DueNotice(kind, target, entry, notice_key(state, entry.seq, target))
        for entry in entries
        if type(entry.fact) in _NOTABLE
        for target, kind in _recipients(rules, tuple(_kinds(state, entry.fact)), entry.fact)
    ]


def notice_key(state: State, seq: int, target: str) -> str:
    """The same whenever the notice is sent, and different from that of any other: by run, event and target."""
    run = state.run
    name = f"{run.uid or run.run_id}:{seq}:{target}"
    return f"notice_{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def _kinds(state: State, fact: e.Fact) -> Iterator[NoticeKind]:
    """The kinds under which a fact may be announced, the most specific first."""
    if isinstance(fact, e.RunFailed):
        yield "failed"
    elif isinstance(fact, e.RunCompleted):
        if fact.degraded:
            yield "degraded"
        if fact.degraded or state.failures or state.recoveries or state.tallies:
            yield "recovered"
        yield "completed"
    elif isinstance(fact, e.RunLate):
        yield "late"
    elif _asks_a_person(state, fact):
        yield "needs_person"


def _asks_a_person(state: State, fact: e.Fact) -> bool:
    if isinstance(fact, e.AttemptStarted):
        place = state.places.get(fact.place)
        return place is not None and traits_of(place.spec.action).asks_person
    if isinstance(fact, e.StepParked):
        # An agent is asked first. If it does not decide, `TriageSuggested` asks a person.
        return not fact.agent
    # Somebody who pauses a run knows that it is paused.
    return isinstance(fact, e.TriageSuggested) or (isinstance(fact, e.RunPaused) and fact.by == ENGINE)


def _recipients(
    rules: tuple[NoticeRule, ...], kinds: tuple[NoticeKind, ...], fact: e.Fact
) -> Iterator[tuple[str, NoticeKind]]:
    after = fact.after if isinstance(fact, e.RunLate) else None
    wanted: dict[str, set[NoticeKind]] = {}
    for rule in rules:
        for target in rule.to:
            on = rule.on if after is None or rule.late_after == after else ()
            wanted.setdefault(target, set()).update(on)
    for target, named in wanted.items():
        if (kind := next((kind for kind in kinds if kind in named), None)) is not None:
            yield target, kind
