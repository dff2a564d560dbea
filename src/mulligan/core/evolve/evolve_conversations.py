"""Apply what an agent with tools or a session says: its turns, its calls, its session. Part of `evolve`."""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.core.model import events as e
from mulligan.core.model.agents.conversation import SessionPart
from mulligan.core.state.conversation_records import NO_CONVERSATION, CalledTool, Conversation, ToolResult, Turn
from mulligan.core.state.state import Place, State
from mulligan.errors import IllegalTransition

_replace = msgspec.structs.replace
# The roles of the places below such an agent.
CONVERSATION_ROLES = ("tool_list", "model", "tool")


def begin_turns(place: Place) -> None:
    """An attempt of the agent begins: it goes on with the turns of the visit, and its limits count anew."""
    before = place.conversation or NO_CONVERSATION
    bindings = place.bindings if place.spec.session else {}
    place.conversation = Conversation(turns=before.turns, begun=len(before.turns), bindings=bindings)


def end_turn_command(place: Place, fact: Any) -> None:
    """A list of tools, a question to the model or a call has ended below the agent."""
    talk = place.conversation or NO_CONVERSATION
    is_done = isinstance(fact, e.CommandCompleted)
    if fact.role == "tool_list" and is_done:
        place.conversation = _replace(talk, lists=(*talk.lists, fact.output))
    elif fact.role == "model":
        turns = (*talk.turns, Turn(fact.output)) if is_done else talk.turns
        place.conversation = _replace(talk, turns=turns, asked=talk.asked + 1)


def tool_called(state: State, place: Place, fact: e.ToolCalled, entry: e.Entry) -> None:
    talk = place.conversation or NO_CONVERSATION
    call = CalledTool(fact.number, fact.tool, id=fact.id, arguments=fact.arguments, target=fact.target)
    place.conversation = _replace(talk, called=talk.called + 1, open=call)


def tool_answered(state: State, place: Place, fact: e.ToolAnswered, entry: e.Entry) -> None:
    talk = place.conversation
    if talk is None or not talk.turns:
        raise IllegalTransition(f"ToolAnswered cannot follow for '{fact.place}': its model asked for no tool")
    *earlier, last = talk.turns
    arguments = talk.open.arguments if talk.open is not None else {}
    result = ToolResult(fact.tool, fact.id, output=fact.output, error=fact.error, arguments=arguments)
    results = (*last.results, result)
    place.conversation = _replace(talk, turns=(*earlier, _replace(last, results=results)), open=None)


def session_kept(state: State, fact: e.SessionKept, entry: e.Entry) -> None:
    parts = state.run.sessions.get(fact.session, ())[fact.dropped :]
    part = SessionPart(fact.place, fact.attempt, fact.messages, fact.chars)
    state.run.sessions = {**state.run.sessions, fact.session: (*parts, part)}
