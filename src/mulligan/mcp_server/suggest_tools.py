"""The tool that proposes rules from what runs did."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec

from mulligan.mcp_server.argument_types import WorkflowName
from mulligan.mcp_server.tool import Arguments, Tool, ToolCall
from mulligan.service.authoring.suggest import Suggestions
from mulligan.service.authoring.values import parse_time


class SuggestRules(Arguments, frozen=True):
    workflow: WorkflowName = ""
    since: Annotated[
        str, msgspec.Meta(max_length=40, description="Only runs started since then: how long ago (30d), or a date.")
    ] = ""
    step: Annotated[str, msgspec.Meta(max_length=200, description="Only this step.")] = ""


def suggest_rules(call: ToolCall) -> Suggestions:
    asked: SuggestRules = call.arguments
    since = parse_time(asked.since, datetime.now(UTC)) if asked.since else None
    found: Suggestions = call.service.workflows.suggest(asked.workflow, since=since, step=asked.step)
    return found


TOOLS = (
    Tool(
        "suggest_rules",
        "read",
        "Which retry rules, limits and circuit breakers the runs of a store speak for, and which rules and handlers "
        "never helped: each proposal with its evidence and as YAML, what would save most first. Nothing is changed; to "
        "change a workflow, put the YAML into its text and call `propose_workflow`.",
        SuggestRules,
        suggest_rules,
        is_slow=True,
    ),
)
