"""The tools that a step may call, by their kinds; whatever they do, what comes out is a value or a StepError."""

from __future__ import annotations

import importlib
from typing import Any

from mulligan import StepError
from mulligan.worker.actions.noetl import failures
from mulligan.worker.actions.noetl.call import Call
from mulligan.worker.actions.noetl.credentials import refused
from mulligan.worker.actions.noetl.templates import filled_text

# Imported by who needs them: a step of code does not wait for what sends requests.
_TOOLS = {
    "duckdb": "sql_tools:run",
    "http": "http_tool:run",
    "noop": "tools:noop",
    "postgres": "sql_tools:run",
    "python": "python_tool:run",
    "secrets": "tools:secret",
    "shell": "shell_tool:run",
}
# Stands for a secret in what a step gives: the value itself would be hidden there, and lost.
SECRET = "$secret"


def call_tool(tool: dict[str, Any], call: Call) -> Any:
    """What the tool gives. StepError, with NoETL's view of it in its details, where it fails."""
    kind = tool.get("kind", "noop")
    if kind not in _TOOLS:
        raise refused(f"there is no tool '{kind}' here")
    module, _, function = _TOOLS[kind].partition(":")
    run = getattr(importlib.import_module(f"{__package__}.{module}"), function)
    try:
        return run(tool, call.of(tool))
    except StepError as error:
        raise failures.of_tool(error, kind).with_traceback(error.__traceback__) from None


def noop(tool: dict[str, Any], call: Call) -> Any:
    return {"status": "noop", "step": call.step}


def secret(tool: dict[str, Any], call: Call) -> Any:
    """A word for the secret: whoever reads it later is handed the value anew."""
    name = filled_text(str(tool.get("secret_name") or tool.get("name") or ""), call.names)
    call.credentials.of(name)
    return {SECRET: name}
