"""Sessions: what an agent said is kept in the run, for the next agent with the same session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mulligan.core.evolve.evolve_places import holds_conversation
from mulligan.core.model import events as e
from mulligan.core.model.agents.agent_messages import Message, as_text, shorten_text, turn_messages
from mulligan.core.model.failure import failure
from mulligan.core.state.conversation_records import Turn
from mulligan.core.state.scope import DecisionContext, fill_params
from mulligan.core.state.state import Place
from mulligan.errors import ExpressionFailed

# A session is part of every question, so it must leave room in what a model reads.
SESSION_CHARS_MAX = 200_000
# Stands for a secret in a prompt.
_HIDDEN = "***"


def session_facts(now: DecisionContext, place: Place) -> Iterator[e.Fact]:
    """Keep the messages of an agent whose answer was accepted, if it has a session."""
    talk = place.conversation
    if not place.spec.session or talk is None or not talk.turns or not holds_conversation(place.spec):
        return
    try:
        yield _kept(now, place, talk.turns)
    except ExpressionFailed as error:
        message = f"session '{place.spec.session}' was not kept: {error.message}"
        yield e.WarningRecorded(place.key, failure(error.failure_code, message, severity="warning"))


def _kept(now: DecisionContext, place: Place, turns: tuple[Turn, ...]) -> e.SessionKept:
    messages = _messages(now, place, turns)
    if (chars := _chars(messages)) > SESSION_CHARS_MAX:
        # What it asked its tools is of no use to the next agent without the results.
        share = SESSION_CHARS_MAX // 2
        messages = [{**one, "text": shorten_text(one["text"], share)} for one in (messages[0], messages[-1])]
        chars = _chars(messages)
    parts = now.state.run.sessions.get(place.spec.session, ())
    room, dropped = SESSION_CHARS_MAX - chars - sum(part.chars for part in parts), 0
    while room < 0 and dropped < len(parts):
        room += parts[dropped].chars
        dropped += 1
    kept = now.keep(place, "session", messages)
    return e.SessionKept(place.key, place.attempt, place.spec.session, messages=kept, chars=chars, dropped=dropped)


def _messages(now: DecisionContext, place: Place, turns: tuple[Turn, ...]) -> list[Message]:
    """The prompt and what followed, as text alone: nothing in it can be mistaken for a reference."""
    return [{"role": "user", "text": _prompt(now, place)}, *turn_messages(_fetched(now, turns))]


def _fetched(now: DecisionContext, turns: tuple[Turn, ...]) -> Iterator[dict[str, Any]]:
    for turn in turns:
        results = [{"output": _output(now, one.output), "error": one.error} for one in turn.results]
        yield {"answer": now.fetch(turn.answer), "results": results}


def _output(now: DecisionContext, output: Any) -> Any:
    """The output of a tool; a note in place of one that is gone or that only a worker can read."""
    try:
        return now.fetch(output)
    except ExpressionFailed as error:
        return f"[not available: {error.message}]"


def _prompt(now: DecisionContext, place: Place) -> str:
    assert place.spec.action is not None
    bindings = place.conversation.bindings if place.conversation else {}
    prompt = now.fetch(fill_params(place.spec.action, bindings).get("prompt"))
    if isinstance(prompt, dict) and prompt.keys() == {"${}"}:
        return "".join(part if isinstance(part, str) else _HIDDEN for part in prompt["${}"])
    return as_text(prompt)


def _chars(messages: list[Message]) -> int:
    return sum(len(one["text"]) + sum(len(call["arguments"]) for call in one.get("tool_calls", ())) for one in messages)
