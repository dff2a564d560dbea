"""Who is notified about a run, and when the run is late."""

from __future__ import annotations

from mulligan.core.model.workflow import NoticeRule
from mulligan.core.state.state import State


def notice_rules(state: State) -> tuple[NoticeRule, ...]:
    """The rules of a run: those of its workflow and those that it was started with.

    A child run has only what its caller passes on, so that nobody is notified twice.
    """
    run = state.run
    return run.notify if run.parent_run_id is not None else state.workflow.notify + run.notify


def rules_for_child(state: State) -> tuple[NoticeRule, ...]:
    """What a child run announces by itself: that it needs a person. All else shows in the end of its caller."""
    asked = (rule.to for rule in notice_rules(state) if "needs_person" in rule.on)
    targets = tuple(dict.fromkeys(target for to in asked for target in to))
    return (NoticeRule(on=("needs_person",), to=targets),) if targets else ()


def next_lateness(state: State, after: float) -> float | None:
    """The next duration above `after` from which on the round counts as late; None if there is none."""
    found = (rule.late_after for rule in notice_rules(state) if rule.late_after is not None)
    return min((seconds for seconds in found if seconds > after), default=None)
