"""Decisions of a triager: the agent that is asked about a parked step before a person is.

Its answer is applied if it is within the limits of the policy. Anything else, whatever goes wrong, leaves the step
parked for a person, with what the agent suggests and why that was not applied. The judgement reads the policy, the
answer and a counter of the run, and nothing else: no text of a step can change what is allowed.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from mulligan.core.deciding.agents.budgets import CODE as BUDGET_EXCEEDED
from mulligan.core.deciding.lifecycle import Facts
from mulligan.core.deciding.workers.adjustment import decided_adjustment
from mulligan.core.model import events as e
from mulligan.core.model.agents.triage_answers import TriageAnswer, read_answer
from mulligan.core.model.failure import Failure
from mulligan.core.model.text.failure_line import most_useful_line
from mulligan.core.model.text.formatting import format_duration, format_size
from mulligan.core.model.workflow import AGENT_PREFIX, Triage, TriageAgent
from mulligan.core.state.scope import DecisionContext
from mulligan.core.state.state import Place
from mulligan.errors import ExpressionFailed

DETAIL_CHARS_MAX = 500
# Why there is no answer, by the code of the agent's failure; any other failure is `agent_failed`.
_NO_ANSWER = {
    "TIMEOUT": "agent_timeout",
    BUDGET_EXCEEDED: "budget",
    "OUTPUT_INVALID": "invalid_answer",
    "VALIDATION_FAILED": "invalid_answer",
}


class Judgement(msgspec.Struct, frozen=True):
    """Whether an answer is applied: `why_not` is "" if it is. Without an answer, there is nothing to apply."""

    answer: TriageAnswer | None = None
    why_not: str = ""
    detail: str = ""


def judge_suggestion(agent: TriageAgent, decided: int, answer: Any) -> Judgement:
    """Whether what an agent answered is applied. `decided`: how many decisions of agents the run has applied."""
    try:
        found = read_answer(answer)
    except ValueError as error:
        return Judgement(None, "invalid_answer", str(error))
    if found.verdict not in agent.may:
        return Judgement(found, "not_allowed", f"it may decide: {', '.join(agent.may)}")
    if found.confidence < agent.min_confidence:
        return Judgement(found, "below_confidence", f"{found.confidence:.0%} is below {agent.min_confidence:.0%}")
    if found.memory is not None and found.memory > (agent.memory_max or 0):
        return Judgement(found, "memory_max", _cap(format_size(found.memory), agent.memory_max, format_size))
    if found.timeout is not None and found.timeout > (agent.timeout_max or 0):
        return Judgement(found, "timeout_max", _cap(format_duration(found.timeout), agent.timeout_max, format_duration))
    if decided >= agent.max_per_run:
        return Judgement(found, "max_per_run", f"agents may decide {agent.max_per_run} times in a run")
    return Judgement(found)


def _cap(asked: str, cap: Any, describe: Any) -> str:
    return f"it asks for {asked}, and may give {'none' if cap is None else f'at most {describe(cap)}'}"


def default_due(now: DecisionContext, policy: Triage) -> datetime | None:
    """When the default verdict applies if a person is asked now."""
    return None if policy.timeout is None else now.at + timedelta(seconds=policy.timeout)


def is_decided(place: Place) -> bool:
    """Whether there is a decision about the failure of a parked step, which is not followed while its agent runs."""
    return place.climb.ruling is not None and place.climb.ruling.attempt == place.attempt


def decide_or_suggest(now: DecisionContext, place: Place, fact: e.Fact) -> Facts:
    """The agent has ended: apply its decision, or leave the step to a person."""
    policy = now.state.step(place.key).triage
    assert policy is not None and policy.agent is not None
    agent, judged = policy.agent, _judgement(now, policy.agent, fact)
    answer = judged.answer
    if answer is not None and not judged.why_not:
        yield e.StepClassified(
            place.key,
            place.attempt,
            verdict=answer.verdict,
            reason=answer.reason,
            by=f"{AGENT_PREFIX}{agent.provider}",
            adjusted=decided_adjustment(place, answer.memory, answer.timeout),
            confidence=answer.confidence,
            is_triagers=True,
            rule=answer.rule,
        )
        return
    suggested = {} if answer is None else msgspec.structs.asdict(answer)
    yield e.TriageSuggested(
        place.key,
        place.attempt,
        agent=agent.provider,
        why_not=judged.why_not,
        detail=judged.detail,
        due=default_due(now, policy),
        **suggested,
    )


def _judgement(now: DecisionContext, agent: TriageAgent, fact: e.Fact) -> Judgement:
    if isinstance(fact, e.CommandFailed):
        return Judgement(None, _NO_ANSWER.get(fact.failure.code, "agent_failed"), _detail(fact.failure))
    if not isinstance(fact, e.CommandCompleted):
        return Judgement(None, "agent_failed", "it was stopped")
    try:
        output = now.fetch(fact.output)
    except ExpressionFailed as error:
        return Judgement(None, "invalid_answer", error.message[:DETAIL_CHARS_MAX])
    answer = output.get("json") if isinstance(output, dict) else None
    return judge_suggestion(agent, now.state.run.agent_decisions, answer)


def _detail(failure: Failure) -> str:
    line = most_useful_line(failure.message)
    return (f"{failure.code}: {line}" if line else failure.code)[:DETAIL_CHARS_MAX]
