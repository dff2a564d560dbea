"""Tools for what waits for a person, for one failure in detail, and for what steps wrote."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import asdict

from mulligan.api.http.paging import Count, decode_cursor, encode_cursor
from mulligan.mcp_server.argument_types import Cursor, PageSize, RunId, StepName
from mulligan.mcp_server.tool import Arguments, ToolCall, Tools
from mulligan.service.logs.log_pages import LogPage
from mulligan.service.rendering.json_output import to_json
from mulligan.service.runs.views.failure_details import FailureDetails

TOOLS = Tools()


class ListPending(Arguments, frozen=True):
    limit: PageSize = 20
    cursor: Cursor = ""


@TOOLS.add(
    "read",
    "List what waits for a person, oldest run first: failed steps that are parked until somebody decides, "
    "approvals, paused steps and runs. Each parked step has its failure, why no retry rule applied, and what the "
    "same step did in earlier runs. Start here when you are asked to triage.",
    also=("list_pending_failed_jobs",),
)
def list_pending(call: ToolCall, asked: ListPending) -> dict[str, Any]:
    page = call.service.decisions.pending_page(after=decode_cursor(asked.cursor, tuple[Count, str]), limit=asked.limit)
    return {"pending": to_json(page.entries), "next": encode_cursor(page.next), "total": page.total}


class GetFailure(Arguments, frozen=True):
    run_id: RunId
    step: StepName


@TOOLS.add(
    "read",
    "Everything about one failed step: the failure, what each rung of the recovery ladder did and why each retry "
    "rule did not apply, its last attempts with memory and time, the end of its log, and what was decided "
    "earlier about the same error and how that ended. Read it before you decide.",
)
def get_failure(call: ToolCall, asked: GetFailure) -> FailureDetails:
    return call.service.failure_details.details(asked.run_id, asked.step)


class ReadLog(Arguments, frozen=True):
    run_id: RunId
    step: StepName
    attempt: (
        Annotated[int, msgspec.Meta(ge=1, lt=2**31, description="Which attempt; the last one by default.")] | None
    ) = None
    part: Annotated[
        Literal["own", "handler", "script"],
        msgspec.Meta(description="What the step wrote itself, its failure handler, or its recovery script."),
    ] = "own"
    stream: (
        Annotated[Literal["stdout", "stderr"], msgspec.Meta(description="stderr by default, stdout if that is empty.")]
        | None
    ) = None
    first: (
        Annotated[
            int,
            msgspec.Meta(ge=1, lt=2**53, description="The first line to read, from 1; the end of the log by default."),
        ]
        | None
    ) = None
    lines: Annotated[int, msgspec.Meta(ge=1, le=500, description="How many lines at most.")] = 100
    search: Annotated[
        str, msgspec.Meta(max_length=1000, description="Only lines that have this text; small letters match both.")
    ] = ""


@TOOLS.add(
    "read",
    "Read what an attempt of a step wrote, by line: the end of the log by default, a range with `first` and "
    "`lines`, or only the lines that have a text with `search`.",
    is_slow=True,
)
def read_log(call: ToolCall, asked: ReadLog) -> LogPage:
    given = asdict(asked)
    return call.service.logs.pages.read(given.pop("run_id"), given.pop("step"), limit=given.pop("lines"), **given)


class Explain(Arguments, frozen=True):
    run_id: RunId
    step: Annotated[str, msgspec.Meta(description="Only this step, or this part of one.")] = ""
    children: Annotated[bool, msgspec.Meta(description="Also what happened in the runs that it called.")] = False
    limit: PageSize = 200
    cursor: Cursor = ""


@TOOLS.add("read", "Explain in sentences what happened in a run or in one step, in order, and what is waited for now.")
def explain(call: ToolCall, asked: Explain) -> dict[str, Any]:
    after = decode_cursor(asked.cursor, Count) or 0
    page = call.service.details.story(asked.run_id, asked.step, is_tree=asked.children, after=after, limit=asked.limit)
    return {"run_id": page.run_id, "lines": page.lines, "next": encode_cursor(page.next)}
