"""Mulligan: durable workflows in which failure is a first-class path."""

from __future__ import annotations

# `typing` itself is not imported: a step that imports `mulligan` should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mulligan.client.home import Home, connect, run
    from mulligan.client.home import open as open
    from mulligan.client.loading import load
    from mulligan.client.run import Run
    from mulligan.errors import RunFailed
    from mulligan.flows.actions import (
        action,
        agent,
        approve,
        call_file,
        env,
        file,
        group,
        http,
        secret,
        shell,
        sql,
        wait,
    )
    from mulligan.flows.branches import branch, route
    from mulligan.flows.failure import Failure
    from mulligan.flows.flow import Flow, flow
    from mulligan.flows.references import Outcome, Reference, contains, ended, expression, optional, outcome, size
    from mulligan.flows.retries import Retry
    from mulligan.flows.steps import Mapped, Step, latest, step
    from mulligan.language.python.builder import Workflow
    from mulligan.plugins import ActionPlugin, FormatPlugin
    from mulligan.programs.errors import Rejected, StepFailed
    from mulligan.programs.program import Program, program
    from mulligan.programs.verbs import gather, now, publish_state, random, sleep, uuid4, wait_event
    from mulligan.step_context import artifact, attempt, idempotency_key, log, progress

__version__ = "0.2.0"


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
    "action": "mulligan.flows.actions",
    "agent": "mulligan.flows.actions",
    "approve": "mulligan.flows.actions",
    "call_file": "mulligan.flows.actions",
    "env": "mulligan.flows.actions",
    "file": "mulligan.flows.actions",
    "group": "mulligan.flows.actions",
    "http": "mulligan.flows.actions",
    "secret": "mulligan.flows.actions",
    "shell": "mulligan.flows.actions",
    "sql": "mulligan.flows.actions",
    "wait": "mulligan.flows.actions",
    "wait_event": "mulligan.programs.verbs",
    "branch": "mulligan.flows.branches",
    "route": "mulligan.flows.branches",
    "Failure": "mulligan.flows.failure",
    "Flow": "mulligan.flows.flow",
    "flow": "mulligan.flows.flow",
    "Outcome": "mulligan.flows.references",
    "Reference": "mulligan.flows.references",
    "connect": "mulligan.client.home",
    "contains": "mulligan.flows.references",
    "ended": "mulligan.flows.references",
    "expression": "mulligan.flows.references",
    "optional": "mulligan.flows.references",
    "outcome": "mulligan.flows.references",
    "size": "mulligan.flows.references",
    "Retry": "mulligan.flows.retries",
    "Mapped": "mulligan.flows.steps",
    "Step": "mulligan.flows.steps",
    "latest": "mulligan.flows.steps",
    "step": "mulligan.flows.steps",
    "Workflow": "mulligan.language.python.builder",
    "Rejected": "mulligan.programs.errors",
    "StepFailed": "mulligan.programs.errors",
    "Program": "mulligan.programs.program",
    "program": "mulligan.programs.program",
    "gather": "mulligan.programs.verbs",
    "now": "mulligan.programs.verbs",
    "publish_state": "mulligan.programs.verbs",
    "random": "mulligan.programs.verbs",
    "sleep": "mulligan.programs.verbs",
    "uuid4": "mulligan.programs.verbs",
    "artifact": "mulligan.step_context",
    "attempt": "mulligan.step_context",
    "idempotency_key": "mulligan.step_context",
    # The graph of a workflow or a flow for a notebook.
    "_flow_html": "mulligan.client.loading",
    "load": "mulligan.client.loading",
    "log": "mulligan.step_context",
    "open": "mulligan.client.home",
    "progress": "mulligan.step_context",
    "run": "mulligan.client.home",
}

# Without `open`: `from mulligan import *` must not replace that of Python.
__all__ = [
    "ActionPlugin",
    "Failure",
    "Flow",
    "FormatPlugin",
    "Home",
    "Mapped",
    "Outcome",
    "Program",
    "Reference",
    "Rejected",
    "Retry",
    "Run",
    "RunFailed",
    "Step",
    "StepError",
    "StepFailed",
    "Workflow",
    "__version__",
    "action",
    "agent",
    "approve",
    "artifact",
    "attempt",
    "branch",
    "call_file",
    "connect",
    "contains",
    "ended",
    "env",
    "expression",
    "file",
    "flow",
    "gather",
    "group",
    "http",
    "idempotency_key",
    "latest",
    "load",
    "log",
    "now",
    "optional",
    "outcome",
    "program",
    "progress",
    "publish_state",
    "random",
    "route",
    "run",
    "secret",
    "shell",
    "size",
    "sleep",
    "sql",
    "step",
    "uuid4",
    "wait",
    "wait_event",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use: a step that imports `mulligan` alone loads nothing else of it."""
    if name in _LAZY:
        return getattr(__import__(_LAZY[name], fromlist=[name]), name)
    raise AttributeError(f"module 'mulligan' has no attribute '{name}'")


def __dir__() -> list[str]:
    """The public names, also those that are not imported yet: interactive shells complete them."""
    return [*__all__, "open"]
