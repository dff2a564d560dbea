"""How a planner fails: it gives no answer at all, or none that is new. A refusal is an answer, and fails its step."""

from __future__ import annotations

from typing import Any

from mulligan import StepError

# The codes are those of the engine's own models, so that the same rules of `retry` and `breaker` fit.
RATE_LIMITED = "HTTP_429"
SERVER_ERROR = "HTTP_5XX"
CLIENT_ERROR = "HTTP_4XX"
CONNECTION = "CONNECTION"
TIMEOUT = "TIMEOUT"
ANSWER_INVALID = "OUTPUT_INVALID"
SETTINGS_INVALID = "INPUT_INVALID"
# The planner has answered, and gives no SQL.
REFUSED = "QUESTION_REFUSED"

_RETRYABLE = frozenset({RATE_LIMITED, SERVER_ERROR, CONNECTION, TIMEOUT, ANSWER_INVALID})


class PlannerFailed(StepError):
    """A planner gave no answer. `details` has the planner, and `retry_after` in seconds if the service said so."""

    def __init__(
        self, code: str, message: str, *, planner: str, is_retryable: bool | None = None, **details: Any
    ) -> None:
        retryable = code in _RETRYABLE if is_retryable is None else is_retryable
        known = {name: value for name, value in details.items() if value is not None}
        super().__init__(code, message, retryable=retryable, details={"planner": planner, **known})
