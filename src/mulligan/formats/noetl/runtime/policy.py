"""`spec.policy.rules` of a tool: find the rule that holds after a call, and what it decides."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from mulligan import StepError
from mulligan.formats.noetl.runtime.credentials import invalid_input
from mulligan.formats.noetl.runtime.templates import InvalidTemplate, Names, holds, render_value

WAIT_SECONDS_MAX = 300.0
_ATTEMPTS = 3
_FACTOR = 2.0
_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|)\s*")
DECISIONS = ("continue", "retry", "break", "jump", "fail")


@dataclass(frozen=True)
class Decision:
    """What to do after a call. `attempts` counts all calls, including the first."""

    do: str
    attempts: int = _ATTEMPTS
    backoff: str = "none"
    delay: float = 0.0
    factor: float = _FACTOR
    max_delay: float | None = None
    to: str = ""
    sets: dict[str, Any] = field(default_factory=dict)

    def wait(self, retries: int) -> float:
        """The delay before the n-th retry, in seconds. `none` with a delay is constant."""
        wait = self.delay
        if self.backoff == "linear":
            wait *= retries
        elif self.backoff == "exponential":
            wait *= self.factor ** min(retries - 1, 64)
        return wait if self.max_delay is None else min(wait, self.max_delay)


CONTINUE, FAIL = Decision("continue"), Decision("fail")


def rules_of(tool: dict[str, Any]) -> list[dict[str, Any]]:
    policy = (tool.get("spec") or {}).get("policy") or {}
    return policy.get("rules") or []


def must_retry_in_place(tool: dict[str, Any]) -> bool:
    """Whether its retries must run within the attempt: what such a rule sets would be lost in another attempt."""
    thens = [_then(rule) for rule in rules_of(tool)]
    return any(then.get("do") == "jump" or (then.get("do") == "retry" and then.get("set")) for then in thens)


def decide(tool: dict[str, Any], names: Names, is_success: bool) -> Decision:
    """The decision of the first rule that holds. Without one a success continues, and a failure fails."""
    for rule in rules_of(tool):
        if _holds(rule, names):
            return read_decision(_then(rule), names)
    return CONTINUE if is_success else FAIL


def read_decision(then: dict[str, Any], names: Names) -> Decision:
    """Read a `then`."""
    fields = render_value({key: value for key, value in then.items() if key != "set"}, names)
    do = fields.get("do", "continue")
    if do not in DECISIONS:
        raise invalid_input(f"'do: {do}' of a rule is unknown: use one of {', '.join(DECISIONS)}")
    most = fields.get("max_delay")
    return Decision(
        do,
        attempts=int(_number(fields.get("attempts", _ATTEMPTS), "attempts")),
        backoff=str(fields.get("backoff", "none")),
        delay=seconds(fields.get("delay", 0)),
        factor=_number(fields.get("factor", _FACTOR), "factor"),
        max_delay=None if most is None else seconds(most),
        to=str(fields.get("to", "")),
        sets=then.get("set") or {},
    )


def seconds(value: Any) -> float:
    """Read a delay: a number of seconds, or a text such as '500ms'."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise invalid_input(f"'{value}' is not a delay such as 5 or '500ms'")
    return float(found[1]) * _UNITS[found[2]]


def time_limit(value: Any, key: str) -> float:
    """Read a time limit in seconds."""
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        raise invalid_input(f"'{key}' is {value!r}, a number of seconds is expected")
    return float(value)


def _number(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid_input(f"'{key}' of a rule is '{value}', a number is expected")
    return float(value)


def _holds(rule: dict[str, Any], names: Names) -> bool:
    """A condition that cannot be evaluated, such as one about a missing response, does not hold."""
    if "when" not in rule:
        return True  # `else`
    try:
        return holds(rule["when"], names)
    except InvalidTemplate:
        raise
    except StepError:
        return False


def _then(rule: dict[str, Any]) -> dict[str, Any]:
    found = rule.get("then") or (rule.get("else") or {}).get("then") or rule.get("else") or {}
    return dict(found)
