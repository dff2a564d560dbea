"""Mulligan: durable workflows in which failure is a first-class path."""

from __future__ import annotations

# `typing` itself is not imported: a step that imports `mulligan` should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mulligan.client.home import Home, open, run
    from mulligan.client.loading import load
    from mulligan.client.run import Run
    from mulligan.errors import RunFailed
    from mulligan.language.builder import Workflow
    from mulligan.plugins import ActionPlugin, FormatPlugin

__version__ = "0.1.0"


class StepError(Exception):
    """Raise this in a Python step to choose its failure code. `severity` is `warning`, `error` or `critical`."""

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        severity: str | None = None,
        retryable: bool | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message or code)
        self.code = code
        self.message = message
        self.severity = severity
        self.retryable = retryable
        self.details: dict[str, Any] = details or {}

    def report(self) -> dict[str, Any]:
        """The fields that were set, as the engine reads them."""
        fields: dict[str, Any] = {
            "code": self.code,
            "message": self.message,
            "severity": self.severity,
            "retryable": self.retryable,
            "details": self.details,
        }
        return {name: value for name, value in fields.items() if value not in (None, "", {})}


# Each public name and its module. The block for type checkers above has the same names.
_LAZY = {
    "ActionPlugin": "mulligan.plugins",
    "FormatPlugin": "mulligan.plugins",
    "Home": "mulligan.client.home",
    "Run": "mulligan.client.run",
    "RunFailed": "mulligan.errors",
    "Workflow": "mulligan.language.builder",
    "load": "mulligan.client.loading",
    "open": "mulligan.client.home",
    "run": "mulligan.client.home",
}

__all__ = [
    "ActionPlugin",
    "FormatPlugin",
    "Home",
    "Run",
    "RunFailed",
    "StepError",
    "Workflow",
    "__version__",
    "load",
    "open",
    "run",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use: a step that imports `mulligan` alone loads nothing else of it."""
    if name in _LAZY:
        return getattr(__import__(_LAZY[name], fromlist=[name]), name)
    raise AttributeError(f"module 'mulligan' has no attribute '{name}'")
