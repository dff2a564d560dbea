"""What a triager answers about a parked step: its schema, and the reading of an answer.

A model wrote the answer after reading text that anybody may have written. So everything in it is checked here again,
whatever checked it before, and every text is cut.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.core.model.failure import UNWRITABLE
from mulligan.core.model.text.durations import DURATION_SECONDS_MAX, is_number, parse_duration
from mulligan.core.model.text.sizes import SIZE_BYTES_MAX, parse_size
from mulligan.core.model.workflow import VERDICTS, Verdict

REASON_CHARS_MAX = 2_000
RULE_CHARS_MAX = 1_000
# How much of a wrong value is quoted.
_SHOWN_CHARS_MAX = 60

# For the provider of the agent, which checks it where it can.
ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "verdict": {"type": "string", "enum": list(VERDICTS)},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "reason": {"type": "string", "minLength": 1},
        "memory": {"type": ["string", "integer", "null"]},
        "timeout": {"type": ["string", "number", "null"]},
        "rule": {"type": ["string", "null"]},
    },
    "required": ["verdict", "confidence", "reason"],
    "additionalProperties": False,
}


class TriageAnswer(msgspec.Struct, frozen=True):
    """A valid answer. Memory in bytes and timeout in seconds, for the next attempt."""

    verdict: Verdict
    confidence: float
    reason: str
    memory: int | None = None
    timeout: float | None = None
    rule: str = ""


def read_answer(value: Any) -> TriageAnswer:
    """The answer in a JSON value. A ValueError says what is wrong with it."""
    if not isinstance(value, dict):
        raise ValueError("the answer is not a JSON object")
    if unknown := [key for key in value if key not in ANSWER_SCHEMA["properties"]]:
        raise ValueError(f"{_quote(unknown[0])} is not a key of an answer")
    verdict: Any = value.get("verdict")
    confidence: Any = value.get("confidence")
    if verdict not in VERDICTS:
        raise ValueError(f"the verdict is {_quote(verdict)}, not {' or '.join(VERDICTS)}")
    if not is_number(confidence) or not 0 <= confidence <= 1:
        raise ValueError(f"the confidence is {_quote(confidence)}, not a number from 0 to 1")
    reason = _text(value, "reason", REASON_CHARS_MAX)
    if not reason:
        raise ValueError("there is no reason")
    memory, timeout = _memory(value.get("memory")), _timeout(value.get("timeout"))
    if verdict != "retry" and (memory is not None or timeout is not None):
        raise ValueError("memory and timeout are for a retry, and the verdict is fail")
    return TriageAnswer(
        verdict,
        float(confidence),
        reason=reason,
        memory=memory,
        timeout=timeout,
        rule=_text(value, "rule", RULE_CHARS_MAX),
    )


def _text(value: dict[str, Any], key: str, chars_max: int) -> str:
    text = value.get(key)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise ValueError(f"the {key} is {_quote(text)}, not a text")
    return UNWRITABLE.sub("\ufffd", text.strip()[:chars_max])


def _memory(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= SIZE_BYTES_MAX:
        return value
    try:
        return parse_size(value)
    except ValueError:
        raise ValueError(f"the memory is {_quote(value)}, not a size such as 4GiB") from None


def _timeout(value: Any) -> float | None:
    if value is None:
        return None
    try:
        seconds = parse_duration(value) if isinstance(value, str) or is_number(value) else 0.0
    except (ValueError, OverflowError):
        seconds = 0.0
    if not 0 < seconds <= DURATION_SECONDS_MAX:
        raise ValueError(f"the timeout is {_quote(value)}, not a duration such as 30m")
    return seconds


def _quote(value: Any) -> str:
    shown = UNWRITABLE.sub("\ufffd", str(value))
    return f"'{shown if len(shown) <= _SHOWN_CHARS_MAX else shown[: _SHOWN_CHARS_MAX - 1] + '…'}'"
