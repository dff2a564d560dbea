"""Call a tool by its kind: the result is a value or a StepError."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from mulligan import StepError
from mulligan.formats.noetl.runtime import failures
from mulligan.formats.noetl.runtime.call import Call
from mulligan.formats.noetl.runtime.credentials import invalid_input
from mulligan.formats.noetl.runtime.templates import render_text

# Imported on demand: a step with code does not load what sends requests.
_TOOLS = {
    "duckdb": "sql_tools:run",
    "http": "http_tool:run",
    "mcp": "mcp_tool:run",
    "noop": "tools:noop",
    "postgres": "sql_tools:run",
    "python": "python_tool:run",
    "secrets": "tools:secret",
    "shell": "shell_tool:run",
}
# The tools that run code of the playbook.
_CODE = frozenset({"python", "shell"})
_is_code_allowed = ContextVar("is_code_allowed", default=True)
# Stands for a secret in a result: the value itself would be redacted there, and lost.
SECRET = "$secret"


def call_tool(tool: dict[str, Any], call: Call) -> Any:
    """Call the tool. StepError, with NoETL's fields in its details, where it fails."""
    kind = tool.get("kind", "noop")
    if kind not in _TOOLS:
        raise invalid_input(f"the tool '{kind}' does not exist")
    if kind in _CODE and not _is_code_allowed.get():
        raise invalid_input(f"the tool '{kind}' cannot run in a process that keeps connections")
    module, _, function = _TOOLS[kind].partition(":")

    def work() -> Any:
        run = getattr(importlib.import_module(f"{__package__}.{module}"), function)
        try:
            return run(tool, call.of(tool))
        except StepError as error:
            raise failures.of_tool(error, kind).with_traceback(error.__traceback__) from None

    return work() if call.parts is None else call.parts.run(tool, work)


@contextmanager
def refuse_code() -> Iterator[None]:
    """Refuse tools with code meanwhile: the process may keep what is secret."""
    before = _is_code_allowed.set(False)
    try:
        yield
    finally:
        _is_code_allowed.reset(before)


def noop(tool: dict[str, Any], call: Call) -> Any:
    return {"status": "noop", "step": call.step}


def secret(tool: dict[str, Any], call: Call) -> Any:
    """A reference to the secret: each step that reads it gets the value again."""
    name = render_text(str(tool.get("secret_name") or tool.get("name") or ""), call.names)
    call.credentials.of(name)
    return {SECRET: name}
