"""What a worker needs to ask a model of a conversation: the turns so far, the tools, the session.

Outputs stay references here. The worker fetches them, and makes messages of it with `core.model.agent_messages`.
"""

from __future__ import annotations

from typing import Any

from mulligan.core.model.agents.agent_messages import input_schema
from mulligan.core.state.conversation_records import NO_CONVERSATION
from mulligan.core.state.state import Place, State

# Failures of a question that say nothing about what the model has said: it does not read them.
_NOT_ITS_OWN = frozenset(
    "CONNECTION TIMEOUT WORKER_LOST CIRCUIT_OPEN BUDGET_EXCEEDED NO_CAPACITY OUT_OF_MEMORY EXPRESSION_FAILED "
    "OUTPUT_TOO_LARGE INPUT_INVALID".split()
)


def conversation_of(state: State, place: Place) -> dict[str, Any]:
    """What a model of the agent at `place` reads after its prompt, and the tools that it may call."""
    talk, tools = place.conversation or NO_CONVERSATION, place.spec.tools
    found: dict[str, Any] = {"turn": len(talk.turns), "begun": talk.begun}
    if talk.turns:
        found["turns"] = [
            {"answer": turn.answer, "results": [_result(one.output, one.error) for one in turn.results]}
            for turn in talk.turns
        ]
        if talk.begun and (note := _note(place)):
            found["note"] = note
    if parts := state.run.sessions.get(place.spec.session, ()) if place.spec.session else ():
        found["session"] = [part.messages for part in parts]
    if tools is not None:
        found["tools"] = [
            {"name": tool.name, "description": tool.description, "schema": input_schema(tool.inputs)}
            for tool in tools.steps
        ]
        found["servers"] = [
            {"listed": listed, "allow": list(server.allow), "prefix": server.prefix}
            for server, listed in zip(tools.servers, talk.lists, strict=False)
        ]
    return found


def _result(output: Any, error: str) -> dict[str, Any]:
    return {"error": error} if error else {"output": output}


def _note(place: Place) -> str:
    """What was wrong with the last attempt, if the model can do something about it."""
    summary, found = place.climb.summary, place.failure
    if summary is None or found is None or found.code in _NOT_ITS_OWN or found.code.startswith("HTTP_"):
        return ""
    return summary.content
