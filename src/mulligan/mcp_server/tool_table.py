"""The one table of tools."""

from __future__ import annotations

from dataclasses import replace

from mulligan.mcp_server import (
    decide_tools,
    failure_tools,
    run_change_tools,
    run_read_tools,
    workflow_tools,
)
from mulligan.mcp_server.tool import Tool

# In the order in which clients list them: what is needed first comes first.
_MODULES = (failure_tools, decide_tools, run_read_tools, workflow_tools, run_change_tools)
TOOLS: tuple[Tool, ...] = tuple(tool for module in _MODULES for tool in module.TOOLS)


def with_aliases(tools: tuple[Tool, ...]) -> dict[str, Tool]:
    """The tools by every name that they have."""
    found = {tool.name: tool for tool in tools}
    for tool in tools:
        described = f"The same as `{tool.name}`, under the name that it has in Torc."
        found |= {name: replace(tool, name=name, describe=described, also=()) for name in tool.also}
    return found


BY_NAME = with_aliases(TOOLS)
