"""What an answer of an agent must look like: text, JSON, or JSON that matches a schema; and the decision in it."""

from __future__ import annotations

import re
from typing import Any

from mulligan.core.deciding.json_schema import value_problems
from mulligan.core.model.rejected_output import rejected_details
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.expressions import as_text
from mulligan.worker.outputs import outputs

_SHOWN_CHARS_MAX = 1_000
_DECISION_CHARS_MAX = 200
# Also accepts the key that workflows of another system ask their agents for.
_DECISION = lazy_regex(
    r"[*`\s]*(?:decision|(?:result\.)?(?:metadata\.)?routingDecision)[*`]*:[*`\s]*([\w-]+)[*`\s.]*", re.IGNORECASE
)
# Models often wrap JSON like this.
_FENCED = lazy_regex(r"```[a-z]*\n(.*)\n```", re.DOTALL)


class AnswerRejected(Exception):
    """The answer does not match its schema: VALIDATION_FAILED. `details` has the answer, for the next attempt."""

    def __init__(self, message: str, answer: str) -> None:
        super().__init__(message)
        self.details = rejected_details(answer)


def schema_of(form: Any) -> dict[str, Any] | None:
    """Return the schema that `answer` asks for; None if it asks for none."""
    return form["schema"] if isinstance(form, dict) else None


def read_structure(written: dict[str, Any], form: Any, chars_max: int | None = None) -> dict[str, Any]:
    """Return the answer with its content parsed, and the decision in it, as `answer` in the workflow says.

    OutputInvalid if it has to be JSON and is not; AnswerRejected if it does not match its schema, or is longer than
    what is checked.
    """
    schema = schema_of(form)
    if schema is None:
        return written if form != "json" else _with_shown_json(written)
    content = as_text(written["content"])
    if chars_max is not None and len(content) > chars_max:
        raise AnswerRejected(f"its answer has more than {chars_max} characters, too many for a schema", content)
    try:
        parsed = _with_json(written)
    except outputs.OutputInvalid as problem:
        raise AnswerRejected(f"{problem}, and must be JSON that matches a schema", content) from None
    if problems := value_problems(schema, parsed["json"]):
        raise AnswerRejected(f"its answer does not match the schema: {'; '.join(problems)}", content)
    return parsed


def _with_shown_json(written: dict[str, Any]) -> dict[str, Any]:
    """Return the answer with its content parsed. The error shows the answer: a person or agent fixes it."""
    try:
        return _with_json(written)
    except outputs.OutputInvalid as problem:
        content = as_text(written["content"]).strip()
        shown = f"; it says: {content[:_SHOWN_CHARS_MAX]}" if content else ""
        raise outputs.OutputInvalid(f"{problem}{shown}") from None


def _with_json(written: dict[str, Any]) -> dict[str, Any]:
    """Return the answer with its content parsed as JSON, and the decision in it. OutputInvalid if it is not JSON."""
    content = as_text(written["content"]).strip()
    fenced = _FENCED.fullmatch(content)
    said = outputs.decode_json((fenced[1] if fenced else content).encode(), "its answer")
    decided = said.get("decision") if isinstance(said, dict) else None
    return {**written, "decision": written["decision"] or (decided if isinstance(decided, str) else None), "json": said}


def decision(printed: str) -> str | None:
    """Return the word in a last line such as `decision: approved`; None if there is no such line."""
    line = printed.rstrip().rpartition("\n")[2]
    written = _DECISION.fullmatch(line) if len(line) <= _DECISION_CHARS_MAX else None
    return written[1] if written else None


def shown_usage(used: dict[str, Any]) -> dict[str, Any]:
    """Return the usage as the answer shows it."""
    parts = {name: used[f"{name}_tokens"] for name in ("input", "output") if f"{name}_tokens" in used}
    shown: dict[str, Any] = {name: used[name] for name in ("cost", "calls", "turns", "model") if name in used}
    return {"tokens": parts or used.get("tokens"), **shown}
