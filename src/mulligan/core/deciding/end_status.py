"""The status that `end` may return for its run: `{"status": "completed" or "failed", "reason": …}`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from mulligan.core.model.artifacts import is_artifact

END_STATUSES = ("completed", "failed")
# The outputs of `http` and `noetl` actions: their `status` is that of a response or a tool, not of the run.
_RESPONSES = (frozenset(("status", "headers", "body")), frozenset(("result", "ctx", "next", "status")))


def parse_end_output(output: Any) -> dict[str, Any]:
    """The object that `end` returned, also if it is the text of one, since a shell command prints text."""
    if isinstance(output, str) and output.lstrip().startswith("{"):
        # Strict: values that a log cannot hold (a lone surrogate, a huge number) are not accepted.
        with suppress(ValueError, RecursionError):
            output = msgspec.json.decode(output)
    if not isinstance(output, dict) or is_artifact(output) or output.keys() in _RESPONSES:
        return {}
    return output


def status_problem(output: Any) -> str:
    """Why the status that `end` returned is not valid; empty if it is, or if there is none."""
    status = parse_end_output(output).get("status")
    if status is None or (isinstance(status, str) and status in END_STATUSES):
        return ""
    return f'end returned the status {_excerpt(status)}: it may return "completed" or "failed", or no status'


def _excerpt(status: Any) -> str:
    text = msgspec.json.encode(status).decode()
    return text if len(text) <= 100 else f"{text[:100]}…"
