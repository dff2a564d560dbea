"""What tasks are assumed to answer where the core reads it: agents, triagers, lists of items, custom handlers."""

from __future__ import annotations

from typing import Any

from mulligan.analysis.playing.assumed_values import ITEMS, assumed_input
from mulligan.core.model.workflow import AgentTools
from mulligan.core.state.state import Place, State


def assumed_output(state: State, place: Place) -> Any:
    """The output of an attempt that succeeds; None, which is nothing known, for most."""
    role = place.role
    if role == "lister":
        return list(ITEMS)
    if role == "model":
        return _answer(state, place)
    if role == "tool_list":
        tools = state.places[place.parent].spec.tools or AgentTools()
        return {"tools": [{"name": name} for name in tools.servers[place.index].allow]}
    if role == "triager":
        return _triage_answer(state, place)
    if role == "handler" and _is_custom(state, place):
        return {"status": "completed", "output": None}
    return None


def _is_custom(state: State, place: Place) -> bool:
    """Whether it is the last command of a custom handler, which decides how its step ends."""
    handler = state.places[place.parent].spec.on_failure
    return handler is not None and handler.strategy == "custom" and place.index == len(handler.commands) - 1


def _triage_answer(state: State, place: Place) -> dict[str, Any]:
    """A triager is sure that another attempt helps, if it may say so. What follows if it fails is a case of its own."""
    policy = state.step(place.parent).triage
    may = policy.agent.may if policy is not None and policy.agent is not None else ()
    verdict = "retry" if "retry" in may else "fail"
    return {"json": {"verdict": verdict, "confidence": 1.0, "reason": "assumed"}}


def _answer(state: State, place: Place) -> dict[str, Any]:
    """The answer of a model: first it asks for every tool once, then it is done."""
    agent = state.places[place.parent]
    tools, talk = agent.spec.tools, agent.conversation
    if tools is None or (talk is not None and any(turn.results for turn in talk.turns)):
        return {"content": "done"}
    calls = [
        {"name": tool.name, "arguments": {name: assumed_input(one) for name, one in tool.inputs.items()}}
        for tool in tools.steps
    ]
    calls += [{"name": f"{server.prefix}{name}", "arguments": {}} for server in tools.servers for name in server.allow]
    limit = len(calls) if tools.max_calls is None else tools.max_calls
    numbered = [{"id": f"call-{number}", **call} for number, call in enumerate(calls[:limit])]
    return {"content": "", "tool_calls": numbered} if numbered else {"content": "done"}
