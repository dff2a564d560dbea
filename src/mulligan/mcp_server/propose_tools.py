"""The tool that writes: a draft, which only somebody else can publish."""

from __future__ import annotations

from typing import Annotated

import msgspec

from mulligan.errors import ScopeMissing
from mulligan.mcp_server.tool import Arguments, Tool, ToolCall
from mulligan.service.server.catalogue.catalogue import Proposal


class ProposeWorkflow(Arguments, frozen=True):
    name: Annotated[str, msgspec.Meta(min_length=1, description="The name of the workflow, published or new.")]
    text: Annotated[str, msgspec.Meta(min_length=1, description="The whole text of the workflow file.")]
    note: Annotated[str, msgspec.Meta(description="Why: what it changes and which failure it is about.")] = ""
    dry_run: Annotated[bool, msgspec.Meta(description="Only show what it would change, and write no draft.")] = False


def propose_workflow(call: ToolCall) -> Proposal:
    asked: ProposeWorkflow = call.arguments
    workflows = call.service.limits.workflows
    if workflows and asked.name not in workflows:
        raise ScopeMissing(
            f"this token may not propose a change of '{asked.name}'",
            hint=f"it is for {', '.join(workflows[:10])}",
            workflow=asked.name,
        )
    proposal: Proposal = call.service.catalogue.propose(asked.name, asked.text, note=asked.note, dry_run=asked.dry_run)
    return proposal


TOOLS = (
    Tool(
        "propose_workflow",
        "propose",
        "Propose a workflow or a change of one: write a draft and show what differs from the newest version. Nothing "
        "runs it until a person publishes it. A draft of somebody else is never overwritten.",
        ProposeWorkflow,
        propose_workflow,
    ),
)
