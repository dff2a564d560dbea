"""Deliberate defects about agents and their tools, and about workers whose time is over."""

from __future__ import annotations

from typing import Any

from mulligan.core.deciding import ladder
from mulligan.core.deciding.agents import conversations
from mulligan.core.evolve import spending_ledger
from mulligan.core.model import events as e

from .sabotage import defect


@defect(ladder, "schedule")
def _(real: Any) -> Any:
    """a task that its worker has interrupted has failed"""

    def schedule(now: Any, place: Any, cause: str, *rest: Any) -> Any:
        if cause != "interrupted":
            yield from real(now, place, cause, *rest)
            return
        found = ladder.make_failure(now, place, "SIGNALED", "ended with its worker")
        yield e.AttemptFailed(place.key, place.attempt, found)

    return schedule


@defect(ladder, "is_too_long")
def _(real: Any) -> Any:
    """a task fails when the time of its first worker is over"""
    return lambda times, ran_seconds, life_seconds: True


@defect(spending_ledger, "_agent_spending")
def _(real: Any) -> Any:
    """what an agent has spent is counted twice"""
    return lambda place, fact: real(place, fact) + spending_ledger.spent_from_usage(fact.usage)


@defect(conversations, "tool_budget_refusal")
def _(real: Any) -> Any:
    """a tool is called though the calls of its agent are spent"""
    return lambda state, place: None


@defect(conversations, "_continue")
def _(real: Any) -> Any:
    """a tool that has answered is called again"""

    def go_on(now: Any, place: Any) -> Any:
        talk = conversations._talk(place)
        calls = conversations.asked_calls(now.fetch(talk.turns[-1].answer)) if talk.turns else ()
        if talk.turns and calls and len(talk.turns[-1].results) == 1 == talk.called:
            return conversations._call(now, place, calls[0])
        return real(now, place)

    return go_on
