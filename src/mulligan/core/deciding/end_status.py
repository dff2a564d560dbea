"""What `end` says about the status of its run: an object `{"status": "completed" or "failed", "reason": …}`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from mulligan.core.model.artifacts import is_artifact

END_STATUSES = ("completed", "failed")
# The outputs of an `http` and of a `noetl` action: their `status` is that of a response or of a tool, not of the run.
_RESPONSES = (frozenset(("status", "headers", "body")), frozenset(("result", "ctx", "next", "status")))


def parse_end_output(output: Any) -> dict[str, Any]:
    """What `end` returned, as an object or as the text of one: a shell command prints text."""
    if isinstance(output, str) and output.lstrip().startswith("{"):
        # Strict: what a log cannot hold (half a character, a number beyond measure) is no word either.
        with suppress(ValueError, RecursionError):
            output = msgspec.json.decode(output)
    if not isinstance(output, dict) or is_artifact(output) or output.keys() in _RESPONSES:
        return {}
    return output


def status_problem(output: Any) -> str:
    """Why the status that `end` returned cannot be the status of a run; empty if it can, or if there is none."""
    status = parse_end_output(output).get("status")
    if status is None or (isinstance(status, str) and status in END_STATUSES):
        return ""
    return f'end returned the status {_excerpt(status)}: it may return "completed" or "failed", or no status'


def _excerpt(status: Any) -> str:
    text = msgspec.json.encode(status).decode()
    return text if len(text) <= 100 else f"{text[:100]}…"
