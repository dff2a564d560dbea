"""Tools that read runs: lists, one run, what it used, two beside each other."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import asdict

from mulligan.api.areas.run_filters import RunFilters, run_query
from mulligan.api.http.paging import Count, decode_cursor, encode_cursor
from mulligan.errors import InputInvalid
from mulligan.mcp_server.argument_types import Cursor, PageSize, RunId
from mulligan.mcp_server.tool import Arguments, ToolCall, Tools
from mulligan.service.rendering.json_output import to_json
from mulligan.service.runs.views.run_comparison import RunComparison
from mulligan.service.runs.views.run_pages import StepQuery
from mulligan.service.runs.views.run_view import RUN_HEAD, part

TOOLS = Tools()

# The page of the report, in clients that show pages.
REPORT_PAGE = "ui://mulligan/report.html"
# Of the steps of two runs those that differ come first.
COMPARED_MAX, DIFF_LINES_MAX = 50, 200


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


@TOOLS.add("read", "List runs, the newest first, with their status, why they failed and what they wait for.")
def list_runs(call: ToolCall, asked: ListRuns) -> dict[str, Any]:
    given = {name: value for name, value in asdict(asked).items() if name in RunFilters.__struct_fields__}
    query = run_query(RunFilters(**given), limit=asked.limit, before=decode_cursor(asked.cursor, Count))
    page = call.service.runs.page(query)
    return {"runs": to_json(page.runs), "next": encode_cursor(page.next)}


class GetRun(Arguments, frozen=True):
    run_id: RunId
    step: Annotated[
        str, msgspec.Meta(description="Only this step, with every attempt at it; or a matrix with its steps.")
    ] = ""
    status: Annotated[
        tuple[str, ...], msgspec.Meta(description="Of the steps only those with one of these, such as failed.")
    ] = ()
    limit: Annotated[int, msgspec.Meta(ge=1, le=200, description="How many steps at most.")] = 50
    cursor: Annotated[str, msgspec.Meta(description="`next` of the steps of the answer before.")] = ""


@TOOLS.add(
    "read",
    "Show one run: status, inputs, outputs, failures and whether each was handled, what it waits for, and its "
    "steps; with `step` one step with every attempt at it.",
)
def get_run(call: ToolCall, asked: GetRun) -> Any:
    if asked.step:
        return call.service.details.step(asked.run_id, asked.step)
    head = to_json(part(call.service.details.head(asked.run_id), RUN_HEAD))
    query = StepQuery(asked.status, limit=asked.limit, after=decode_cursor(asked.cursor, str) or "")
    page = call.service.runs.step_page(asked.run_id, query)
    steps = {"steps": to_json(page.steps), "next": encode_cursor(page.next), "total": page.total}
    return {**head, "steps": steps}


class GetMoment(Arguments, frozen=True):
    run_id: RunId
    at: Annotated[int, msgspec.Meta(ge=1, description="The run after the event with this number.")] | None = None
    step: Annotated[str, msgspec.Meta(description="The events at which something happened to this step.")] = ""


@TOOLS.add(
    "read",
    "A run as it was after one of its events: its steps, what it waited for, and what came next and why; or with "
    "`step` the numbers of the events of that step. fork_run goes on from an event in a new run.",
)
def get_moment(call: ToolCall, asked: GetMoment) -> Any:
    if (asked.at is None) is (asked.step == ""):
        raise InputInvalid("say which moment", hint="give 'at', or 'step' to find it", argument="at")
    if asked.at is None:
        return call.service.past.points(asked.run_id, asked.step)
    return call.service.past.moment(asked.run_id, asked.at, is_whole=call.service.past.is_small(asked.run_id))


class OneRun(Arguments, frozen=True):
    run_id: RunId


@TOOLS.add(
    "read",
    "The report of a run, for a person to look at: a page with failures, graph, timeline and logs. Clients that "
    "show pages show it; others get the run and the address of the report as a resource.",
    page=REPORT_PAGE,
)
def get_report(call: ToolCall, asked: OneRun) -> dict[str, Any]:
    run_id = asked.run_id
    found = to_json(part(call.service.details.head(run_id), RUN_HEAD))
    return {"run_id": run_id, "uri": f"mulligan://runs/{run_id}/report", "run": found}


@TOOLS.add(
    "read", "What the steps of a run asked for (cpus, memory, timeout), what they used, and what they should ask for."
)
def get_usage(call: ToolCall, asked: OneRun) -> dict[str, Any]:
    return {"run_id": asked.run_id, "usage": to_json(call.service.runs.usage(asked.run_id))}


class CompareRuns(Arguments, frozen=True):
    a: RunId
    b: RunId


@TOOLS.add(
    "read",
    "Two runs beside each other: what differs in inputs, in the workflow and in how each step went. For a run "
    "that failed, compare it with the last one that completed.",
    is_slow=True,
)
def compare_runs(call: ToolCall, asked: CompareRuns) -> RunComparison:
    found: RunComparison = call.service.details.compare(asked.a, asked.b)
    steps, text = found.steps[:COMPARED_MAX], found.text[:DIFF_LINES_MAX]
    has_more = found.has_more_text or len(found.text) > DIFF_LINES_MAX
    return msgspec.structs.replace(found, steps=steps, text=text, has_more_text=has_more)
