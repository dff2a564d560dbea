"""Tools for what waits for a person, and for one failure in detail."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from mulligan.api.paging import Count, decode_cursor, encode_cursor
from mulligan.mcp_server.tool import Arguments, Tool, ToolCall
from mulligan.service import commands_for_pending, to_json

PageSize = Annotated[int, msgspec.Meta(ge=1, le=200, description="How many entries at most.")]
Cursor = Annotated[str, msgspec.Meta(description="`next` of the page before; leave it out for the first page.")]
RunId = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1, description="The number of the run.")]
StepName = Annotated[str, msgspec.Meta(min_length=1, description="The step, or an item of it such as build[3].")]


class ListPending(Arguments, frozen=True):
    limit: PageSize = 20
    cursor: Cursor = ""


def list_pending(call: ToolCall) -> dict[str, Any]:
    asked: ListPending = call.arguments
    page = call.service.pending_page(after=decode_cursor(asked.cursor, tuple[Count, str]), limit=asked.limit)
    for entry in page.entries:
        entry.commands = commands_for_pending(entry)
    return {"pending": to_json(page.entries), "next": encode_cursor(page.next), "total": page.total}


TOOLS = (
    Tool(
        "list_pending",
        "read",
        "List what waits for a person, oldest run first: failed steps that are parked until somebody decides, "
        "approvals, paused steps and runs. Each parked step has its failure, why no retry rule applied, and what the "
        "same step did in earlier runs. Start here when you are asked to triage.",
        ListPending,
        list_pending,
        also=("list_pending_failed_jobs",),
    ),
)
