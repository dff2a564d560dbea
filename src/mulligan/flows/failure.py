"""What a handler learns of the failure that it handles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Failure:
    """A failure of a step, as handlers, recovery scripts and the steps of failure routes receive it.

    A parameter with this annotation gets one; its fields are those of `error` and `failure` in expressions.

    `code` is what rules and routes match: `TIMEOUT`, `EXIT_NONZERO`, `EXCEPTION`, or the code of a `StepError`.
    `exceptions` has the name of the class that a Python step has raised, and of its bases.
    """

    code: str = ""
    message: str = ""
    severity: str = "error"
    retryable: bool = True
    exit_code: int | None = None
    signal: int | None = None
    step: str = ""
    item: int | None = None
    visit: int = 0
    attempt: int = 0
    # When it happened: ISO 8601, in UTC. Both are the same.
    at: str | None = None
    timestamp: str | None = None
    details: dict[str, Any] = field(default_factory=dict)
    trace: str = ""
    cause: list[Failure] = field(default_factory=list)
    # The failure of a handler that tried to repair it.
    handler_failure: Failure | None = None
    # What is known about the failed step and its attempts, for a step that a failure was routed to.
    context: Any = None
    exceptions: list[str] = field(default_factory=list)
    # The frames of its traceback, the outermost first: each with `file`, `line`, `function`, `text`, perhaps `locals`.
    traceback: list[dict[str, Any]] = field(default_factory=list)

    @property
    def exception(self) -> str:
        """The name of the class that the step has raised; "" if it has failed otherwise."""
        return self.exceptions[0] if self.exceptions else ""
