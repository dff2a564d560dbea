"""Answers from a file, for tests and rehearsals: the same question at the same place gets the same answer.

The file is a list. The first entry whose conditions hold answers: so nothing is counted outside of the run, and a run
that is resumed or repeated gets the same answers.
"""

from __future__ import annotations

import os
import time
from functools import lru_cache
from typing import Any

import msgspec

from mulligan import StepError
from mulligan.core.deciding.bounded_regex import is_found
from mulligan.core.model.agents.conversation import ToolCall
from mulligan.core.model.agents.spending import parse_cost, plain_cost
from mulligan.language.checks.regular_expressions import SEARCHED
from mulligan.language.keys.value_schemas import (
    DURATION,
    FLAG,
    TEXT,
    Either,
    Fields,
    Json,
    Key,
    ListOf,
    MapOf,
    Record,
    number,
    whole,
)
from mulligan.language.text.document import decode, parse
from mulligan.language.text.nodes import Node, Refusal, Sequence, Source, TooManyProblems
from mulligan.worker.models.answer_parts import Sink
from mulligan.worker.models.request import ModelAnswer, ModelRequest, Origin
from mulligan.worker.models.settings import Access, ModelSettings

FILE_BYTES_MAX = 4_000_000
_CALL = Record(
    "call",
    {
        "name": Key(TEXT, "the tool", is_required=True),
        "arguments": Key(MapOf(Json()), "its arguments"),
        "id": Key(TEXT, "how the result names it"),
    },
)
_ERROR = Record(
    "error",
    {
        "code": Key(TEXT, "the code of the failure", is_required=True),
        "message": Key(TEXT, "what it says"),
        "retryable": Key(FLAG, "whether it may be tried again"),
        "retry_after": Key(number(0), "after how many seconds"),
    },
)
_TOKENS = Record("tokens", {"input": Key(whole(0), "tokens read"), "output": Key(whole(0), "tokens written")})
ENTRY = Record(
    "answer",
    {
        "when": Key(SEARCHED, "a regular expression that is found in the prompt or its context"),
        "step": Key(TEXT, "the step that asks"),
        "place": Key(TEXT, "the place that asks, such as build.triager@2"),
        "visit": Key(whole(1), "the visit of the step"),
        "attempt": Key(whole(1), "the attempt"),
        "turn": Key(whole(1), "the answer of the conversation: 1 is the first"),
        "answer": Key(Json(), "what it says: a text; anything else is said as JSON"),
        "tool_calls": Key(ListOf(_CALL, at_least=1), "the tools that it calls"),
        "error": Key(Either("a code, or a mapping with 'code'", text=TEXT, mapping=_ERROR), "how it fails"),
        "tokens": Key(_TOKENS, "what it used"),
        "cost": Key(number(0), "what that cost, in US dollars"),
        "model": Key(TEXT, "the model that answers"),
        "delay": Key(DURATION, "how long it takes"),
    },
)
_ANSWERS = ("answer", "tool_calls", "error")
_CONDITIONS = ("step", "place", "visit", "attempt", "turn")


def ask(request: ModelRequest, settings: ModelSettings, access: Access, sink: Sink) -> ModelAnswer:
    """Return the answer of the first entry whose conditions hold; INPUT_INVALID if there is none."""
    origin = request.origin or Origin("", "")
    prompt = "\n".join(message.text for message in request.messages if message.role == "user")
    for entry in read_script(settings.file):
        if _holds(entry, origin, prompt):
            return _answer(entry, sink)
    where = f"'{origin.place}' (visit {origin.visit}, attempt {origin.attempt}, turn {origin.turn})"
    message = f"the script '{settings.file}' has no answer for {where}: no entry matches its place and its prompt"
    raise StepError("INPUT_INVALID", message, retryable=False)


def _holds(entry: Fields, origin: Origin, prompt: str) -> bool:
    if any(name in entry and entry[name] != getattr(origin, name) for name in _CONDITIONS):
        return False
    return "when" not in entry or is_found(entry["when"], prompt)


def _answer(entry: Fields, sink: Sink) -> ModelAnswer:
    if "delay" in entry:
        time.sleep(entry["delay"])
    usage = _usage(entry)
    model = entry.get("model", "scripted")
    sink.spend(usage, model)
    if "error" in entry:
        raise _error(entry["error"])
    said = entry.get("answer", "")
    text = said if isinstance(said, str) else msgspec.json.encode(said).decode()
    sink.write(text)
    calls = tuple(
        ToolCall(call.get("id", f"call_{index}"), call["name"], call.get("arguments", {}))
        for index, call in enumerate(entry.get("tool_calls", ()))
    )
    return ModelAnswer(text, calls, usage, model, "tool_calls" if calls else "end")


def _usage(entry: Fields) -> dict[str, Any]:
    counts = entry.get("tokens", {})
    usage: dict[str, Any] = {f"{name}_tokens": counts[name] for name in ("input", "output") if name in counts}
    cost = parse_cost(entry.get("cost"))
    return usage if cost is None else {**usage, "cost": plain_cost(cost)}


def _error(error: str | Fields) -> StepError:
    if isinstance(error, str):
        return StepError(error, f"the script says {error}")
    details = {"retry_after": error["retry_after"]} if "retry_after" in error else {}
    message = error.get("message", f"the script says {error['code']}")
    return StepError(error["code"], message, retryable=error.get("retryable"), details=details)


# -- the file --------------------------------------------------------------------------------------------------------


def read_script(file: str) -> list[Fields]:
    """Read the entries of a file. INPUT_INVALID if it cannot be read, or is wrong."""
    try:
        info = os.stat(file)
        return _read(file, info.st_mtime_ns, info.st_size)
    except OSError as error:
        raise _invalid(f"the script '{file}' cannot be read: {error.strerror or error}") from None


@lru_cache(maxsize=4)
def _read(file: str, changed_at: int, size: int) -> list[Fields]:
    """Read a file again only when it has changed."""
    if size > FILE_BYTES_MAX:
        raise _invalid(f"the script '{file}' is larger than {FILE_BYTES_MAX:,} bytes")
    with open(file, "rb") as opened:
        data = opened.read(FILE_BYTES_MAX)
    try:
        source = decode(data, file)
        entries = _read_entries(parse(source, content="a script is a list of answers"), source)
    except Refusal as refusal:
        problem = refusal.problem
        raise _invalid(f"{problem.file}:{problem.line}:{problem.column}: {problem.message}") from None
    except TooManyProblems:
        entries = []
    if source.problems:
        problem = source.problems[0]
        raise _invalid(f"{problem.file}:{problem.line}:{problem.column}: {problem.message}")
    return entries


def _read_entries(root: Node, source: Source) -> list[Fields]:
    if not isinstance(root, Sequence):
        raise source.refuse("type", "a list of answers is expected, such as '- {when: hello, answer: hi}'", root)
    entries: list[Fields] = [
        ENTRY.read(node, f"answer {index}", source) for index, node in enumerate(root.items, start=1)
    ]
    for index, entry in enumerate(entries, start=1):
        if not entry.has_unknown_keys and not any(key in entry for key in _ANSWERS):
            message = f"answer {index} has neither 'answer' nor 'tool_calls' nor 'error'"
            source.note(source.refuse("missing_key", message, entry.node))
    return entries


def _invalid(message: str) -> StepError:
    return StepError("INPUT_INVALID", message, retryable=False)
