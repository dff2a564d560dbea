"""Tools that read runs: lists, one run, its steps."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from mulligan.api.paging import Count, decode_cursor, encode_cursor
from mulligan.api.run_filters import RunFilters, run_query
from mulligan.mcp_server.failure_tools import Cursor, PageSize, RunId
from mulligan.mcp_server.tool import Arguments, Tool, ToolCall
from mulligan.service import to_json


class ListRuns(Arguments, frozen=True):
    workflow: Annotated[tuple[str, ...], msgspec.Meta(description="Only runs of these workflows.")] = ()
    status: Annotated[
        tuple[Literal["running", "paused", "completed", "failed", "cancelled", "open", "ended"], ...],
        msgspec.Meta(description="Only runs with one of these; `open` and `ended` stand for several."),
    ] = ()
    since: Annotated[
        str, msgspec.Meta(description="Started since then: a time such as 2026-11-01T08:00:00Z, or how long ago: 2h.")
    ] = ""
    until: Annotated[str, msgspec.Meta(description="Started before then.")] = ""
    failure: Annotated[
        tuple[str, ...],
        msgspec.Meta(description="Failed with one of these codes, such as TIMEOUT, and nothing handled it."),
    ] = ()
    text: Annotated[str, msgspec.Meta(description="Words in their name, labels, inputs or failures.")] = ""
    limit: PageSize = 20
    cursor: Cursor = ""


def list_runs(call: ToolCall) -> dict[str, Any]:
    asked: ListRuns = call.arguments
    filters = RunFilters(
        workflow=asked.workflow,
        status=asked.status,
        since=asked.since,
        until=asked.until,
        text=asked.text,
        failure=asked.failure,
    )
    query = run_query(filters, limit=asked.limit, before=decode_cursor(asked.cursor, Count))
    page = call.service.list_runs(query)
    return {"runs": to_json(page.runs), "next": encode_cursor(page.next)}


class GetRun(Arguments, frozen=True):
    run_id: RunId


def get_run(call: ToolCall) -> Any:
    return to_json(call.service.details.head(call.arguments.run_id))


TOOLS = (
    Tool(
        "list_runs",
        "read",
        "List runs, the newest first, with their status, why they failed and what they wait for.",
        ListRuns,
        list_runs,
    ),
    Tool(
        "get_run",
        "read",
        "Show one run without its steps: status, inputs, outputs, failures and whether each was handled, what it "
        "waits for, how many steps have each status.",
        GetRun,
        get_run,
    ),
)
