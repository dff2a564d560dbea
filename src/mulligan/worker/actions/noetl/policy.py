"""`spec.policy.rules` of a tool: which rule holds after a call, and what it says is to be done."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from mulligan import StepError
from mulligan.worker.actions.noetl.credentials import refused
from mulligan.worker.actions.noetl.templates import Misspelled, Names, filled, holds

WAIT_SECONDS_MAX = 300.0
_ATTEMPTS = 3
_FACTOR = 2.0
_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|)\s*")
DEEDS = ("continue", "retry", "break", "jump", "fail")


@dataclass(frozen=True)
class Deed:
    """What is to be done after a call. `attempts` counts all calls, the first among them."""

    do: str
    attempts: int = _ATTEMPTS
    backoff: str = "none"
    delay: float = 0.0
    factor: float = _FACTOR
    max_delay: float | None = None
    to: str = ""
    sets: dict[str, Any] = field(default_factory=dict)

    def wait(self, retries: int) -> float:
        """How many seconds before the n-th retry. `none` with a delay waits that long each time, as is documented."""
        wait = self.delay
        if self.backoff == "linear":
            wait *= retries
        elif self.backoff == "exponential":
            wait *= self.factor ** min(retries - 1, 64)
        return wait if self.max_delay is None else min(wait, self.max_delay)


CONTINUE, FAIL = Deed("continue"), Deed("fail")


def rules_of(tool: dict[str, Any]) -> list[dict[str, Any]]:
    policy = (tool.get("spec") or {}).get("policy") or {}
    return policy.get("rules") or []


def is_in_place(tool: dict[str, Any]) -> bool:
    """Whether its retries cannot be attempts of the step: what such a rule sets would be gone by the next."""
    thens = [_then(rule) for rule in rules_of(tool)]
    return any(then.get("do") == "jump" or (then.get("do") == "retry" and then.get("set")) for then in thens)


def judged(tool: dict[str, Any], names: Names, is_well: bool) -> Deed:
    """The deed of the first rule that holds. Without any, what went well goes on and what did not fails."""
    for rule in rules_of(tool):
        if _holds(rule, names):
            return deed(_then(rule), names)
    return CONTINUE if is_well else FAIL


def deed(then: dict[str, Any], names: Names) -> Deed:
    """What a `then` says, in numbers."""
    said = filled({key: value for key, value in then.items() if key != "set"}, names)
    do = said.get("do", "continue")
    if do not in DEEDS:
        raise refused(f"a rule says 'do: {do}', and there are {', '.join(DEEDS)}")
    most = said.get("max_delay")
    return Deed(
        do,
        attempts=int(_number(said.get("attempts", _ATTEMPTS), "attempts")),
        backoff=str(said.get("backoff", "none")),
        delay=seconds(said.get("delay", 0)),
        factor=_number(said.get("factor", _FACTOR), "factor"),
        max_delay=None if most is None else seconds(most),
        to=str(said.get("to", "")),
        sets=then.get("set") or {},
    )


def seconds(value: Any) -> float:
    """A number of seconds, or a text such as '500ms'."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise refused(f"'{value}' is no delay such as 5 or '500ms'")
    return float(found[1]) * _UNITS[found[2]]


def time_limit(value: Any, key: str) -> float:
    """How long something may take, in seconds."""
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        raise refused(f"'{key}' is {value!r}, and a number of seconds is expected")
    return float(value)


def _number(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused(f"'{key}' of a rule is '{value}', and a number is expected")
    return float(value)


def _holds(rule: dict[str, Any], names: Names) -> bool:
    """A condition that cannot be told, such as one about the answer when there was none, does not hold."""
    if "when" not in rule:
        return True  # `else`
    try:
        return holds(rule["when"], names)
    except Misspelled:
        raise
    except StepError:
        return False


def _then(rule: dict[str, Any]) -> dict[str, Any]:
    found = rule.get("then") or (rule.get("else") or {}).get("then") or rule.get("else") or {}
    return dict(found)
