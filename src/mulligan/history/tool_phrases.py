"""Phrases for what agents do with their tools: calls, answers, sessions."""

from __future__ import annotations

import json
from typing import Any

from mulligan.core.model import events as e
from mulligan.core.model.artifacts import is_artifact, parse_reference, replace_references
from mulligan.core.model.text.formatting import (
    escape_unprintable,
    format_size,
    pluralize,
    single_line,
    strip_control_characters,
)
from mulligan.core.state.state import Place
from mulligan.errors import ArtifactDamaged

# How much of the arguments and of the answer a line shows.
CHARS_MAX = 100
# How many calls of a step are listed; the log has all of them.
CALLS_MAX = 100


def tool_call_text(fact: e.ToolCalled) -> str:
    """`search {"word": "fjord"}`: the tool and its arguments, shortened."""
    return f"{_shown(fact.tool)} {_shown(fact.arguments)}" if fact.arguments else _shown(fact.tool)


def tool_answer_text(fact: e.ToolAnswered) -> str:
    """`search answered: 3 results`; `no answer from search: …`."""
    if fact.error:
        return f"no answer from {_shown(fact.tool)}: {_shown(fact.error)}"
    answer = _shown(fact.output)
    return f"{_shown(fact.tool)} answered{f': {answer}' if answer else ''}"


def tool_calls_json(place: Place) -> list[dict[str, str]]:
    """The last calls of an agent in its current visit, each with its arguments and its answer, shortened."""
    if place.conversation is None:
        return []
    results = [result for turn in place.conversation.turns for result in turn.results][-CALLS_MAX:]
    return [
        {
            "tool": _shown(result.tool),
            "arguments": _shown(result.arguments or None),
            "output": _shown(result.output),
            "error": _shown(result.error),
        }
        for result in results
    ]


def session_text(fact: e.SessionKept) -> str:
    """`kept its messages in session 'chat'`, and how much of the session was dropped."""
    text = f"kept its messages in session '{fact.session}'"
    if not fact.dropped:
        return text
    return f"{text}; the session was too long, so its oldest {pluralize(fact.dropped, 'part')} were dropped"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else "" if value is None else _as_json(value)
    text = escape_unprintable(single_line(strip_control_characters(text)).strip())
    return text if len(text) <= CHARS_MAX else f"{text[: CHARS_MAX - 1]}…"


def _as_json(value: Any) -> str:
    if is_artifact(value):
        return f"{_size(value)} of output"
    return json.dumps(replace_references(value, _size), ensure_ascii=False)


def _size(reference: dict[str, Any]) -> str:
    """What stands for a large value: its size."""
    try:
        return format_size(parse_reference(reference).size)
    except ArtifactDamaged:
        return "an unknown size"
