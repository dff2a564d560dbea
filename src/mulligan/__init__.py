"""Mulligan: durable workflows in which failure is a first-class path."""

from __future__ import annotations

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
        details: dict[str, object] | None = None,
    ) -> None:
        super().__init__(message or code)
        self.code = code
        self.message = message
        self.severity = severity
        self.retryable = retryable
        self.details = details or {}

    def report(self) -> dict[str, object]:
        """The fields that were set, as the engine reads them."""
        fields: dict[str, object] = {
            "code": self.code,
            "message": self.message,
            "severity": self.severity,
            "retryable": self.retryable,
            "details": self.details,
        }
        return {name: value for name, value in fields.items() if value not in (None, "", {})}


_LAZY = {"ActionPlugin": "mulligan.plugins", "Workflow": "mulligan.language.builder"}


def __getattr__(name: str) -> object:
    """Import a public name on first use: a step that imports `mulligan` alone loads nothing else of it."""
    if name in _LAZY:
        return getattr(__import__(_LAZY[name], fromlist=[name]), name)
    raise AttributeError(f"module 'mulligan' has no attribute '{name}'")
