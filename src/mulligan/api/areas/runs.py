"""Runs: listing them, and looking at one in pieces of bounded size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote, unquote

import msgspec

from mulligan.api.areas.run_filters import RunFilters, run_query
from mulligan.api.http.byte_ranges import read_range
from mulligan.api.http.paging import Count, Limit, decode_cursor, encode_cursor
from mulligan.api.http.routing import Answer, Call, Query, Route, Streamed
from mulligan.api.http.struct_types import answer_type
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import InputInvalid
from mulligan.history.views import Wait
from mulligan.ports.records import WaitingPlace
from mulligan.ports.server_records import LogKey
from mulligan.service.authoring.values import parse_time
from mulligan.service.logs.log_lines import LogIndex, LogMatches
from mulligan.service.rendering.json_output import to_json
from mulligan.service.runs.stored.artifacts import KeptFile
from mulligan.service.runs.stored.run_data import DataEntry, choose
from mulligan.service.runs.views.items import Item
from mulligan.service.runs.views.report import Report
from mulligan.service.runs.views.run_details import FailureHandlers
from mulligan.service.runs.views.run_list import RunLine
from mulligan.service.runs.views.run_pages import ItemPage, ItemQuery, StepPage, StepQuery
from mulligan.service.runs.views.run_timeline import Mosaic, Timeline
from mulligan.service.runs.views.run_view import (
    RUN_HEAD,
    WHOLE_RUN,
    MatrixView,
    RunDriver,
    SpentView,
    StepView,
    part,
    part_type,
)
from mulligan.service.runs.views.time_travel import RunMoment
from mulligan.service.service import Service

READ_BYTES = 1 << 20
# How often a log that is followed is read.
FOLLOW_SECONDS = 0.25
SVG, HTML, TEXT = "image/svg+xml", "text/html; charset=utf-8", "text/plain; charset=utf-8"
# A report has its styles and its script inside, and may do nothing else: not even read what else the server has.
REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "sandbox allow-scripts allow-popups; frame-ancestors 'none'"
)
SVG_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


# -- the list --------------------------------------------------------------------------------------------------------


class RunsQuery(RunFilters, frozen=True):
    """Which runs to list. A parameter that is given several times matches any of its values; labels and inputs all."""

    # Also runs that other runs called.
    children: bool = False
    # Also how many match, and how many runs there are with each status: of more than 10,000 runs up to 10 s ago.
    counts: bool = False
    limit: Limit = 50
    cursor: str = ""


def list_runs(call: Call) -> Answer:
    asked: RunsQuery = call.query
    before = decode_cursor(asked.cursor, Count)
    query = run_query(asked, with_children=asked.children, limit=asked.limit, before=before)
    page = call.service.runs.page(query)
    found: dict[str, Any] = {"runs": to_json(page.runs), "next": encode_cursor(page.next)}
    if asked.counts:
        found |= {"total": call.service.runs.count(query), "statuses": call.service.runs.status_counts()}
    # The time of an unfinished run passes, and its driver may die without a word.
    has_ended = all(run.status in RUN_ENDED for run in page.runs)
    return Answer(found, is_timeless=has_ended and not _is_relative(asked.since) and not _is_relative(asked.until))


def _is_relative(time: str) -> bool:
    """Whether it is another moment tomorrow, such as `2h`."""
    now = datetime.now(UTC)
    return bool(time) and parse_time(time, now) != parse_time(time, now + timedelta(days=1))


# -- one run ---------------------------------------------------------------------------------------------------------


def show_run(call: Call) -> Answer:
    run_id = _run_id(call)
    etag = f'"{call.service.details.etag(run_id)}"'
    if is_known(call, etag):
        return Answer(headers={"ETag": etag})
    return Answer(part(call.service.details.head(run_id), RUN_HEAD), headers={"ETag": etag})


def show_whole_run(call: Call) -> Any:
    return part(call.service.details.whole(_run_id(call)), WHOLE_RUN)


def is_known(call: Call, etag: str) -> bool:
    """Whether the caller has this version already, so that nothing has to be read."""
    return etag in [one.strip().removeprefix("W/") for one in call.headers.get("if-none-match", "").split(",")]


def _run_id(call: Call) -> int:
    return int(call.path["run_id"])


class StepsQuery(Query, frozen=True):
    """Which steps to list."""

    status: tuple[str, ...] = ()
    # A part of the name.
    text: str = ""
    limit: Limit = 200
    cursor: str = ""
    # Leave out so many of them.
    skip: Count = 0


def list_steps(call: Call) -> Any:
    run_id, asked = _run_id(call), call.query
    etag = f'"{call.service.runs.record(run_id).seq}"'
    if is_known(call, etag):
        return Answer(headers={"ETag": etag})
    query = StepQuery(asked.status, asked.text, asked.limit, decode_cursor(asked.cursor, str) or "", asked.skip)
    page = call.service.runs.step_page(run_id, query)
    return Answer({**to_json(page), "next": encode_cursor(page.next)}, headers={"ETag": f'"{page.seq}"'})


def show_moment(call: Call) -> Answer:
    run_id, past = _run_id(call), call.service.past
    found = past.moment(run_id, int(call.path["seq"]), is_whole=past.is_small(run_id))
    return Answer(to_json(found))


def show_mosaic(call: Call) -> Answer:
    run_id = _run_id(call)
    etag = f'"{call.service.runs.record(run_id).seq}"'
    if is_known(call, etag):
        return Answer(headers={"ETag": etag})
    found = call.service.details.mosaic(run_id)
    return Answer(to_json(found), headers={"ETag": f'"{found.seq}"'})


class TimelineQuery(Query, frozen=True):
    """Which rows to show."""

    # The number of the first row, from 0.
    first: Count = 0
    limit: Limit = 50
    # Only steps that did not complete.
    hide_completed: bool = False


def show_timeline(call: Call) -> Any:
    asked: TimelineQuery = call.query
    found = call.service.details.timeline(
        _run_id(call), first=asked.first, limit=asked.limit, hide_completed=asked.hide_completed
    )
    return to_json(found)


def show_step(call: Call) -> Any:
    return to_json(call.service.details.step(_run_id(call), call.path["step"]))


class ItemsQuery(Query, frozen=True):
    """Which items to list."""

    status: tuple[str, ...] = ()
    limit: Limit = 200
    # How many to leave out, of those that match and are behind the cursor.
    offset: Count = 0
    # Values, outputs and messages as texts of at most 200 characters.
    brief: bool = False
    cursor: str = ""


def list_items(call: Call) -> Any:
    asked: ItemsQuery = call.query
    after = decode_cursor(asked.cursor, Count)
    query = ItemQuery(asked.status, -1 if after is None else after, asked.offset, asked.limit, asked.brief)
    page = call.service.runs.item_page(_run_id(call), call.path["step"], query)
    return Answer({**to_json(page), "next": encode_cursor(page.next)}, headers={"ETag": f'"{page.seq}"'})


def show_item(call: Call) -> Any:
    return to_json(call.service.runs.item_history(_run_id(call), call.path["step"], int(call.path["index"])))


def show_failure_handlers(call: Call) -> Any:
    return call.service.details.failure_handlers(_run_id(call), call.path["step"])


class ChildrenQuery(Query, frozen=True):
    """Which page to list."""

    limit: Limit = 50
    cursor: str = ""


def list_children(call: Call) -> dict[str, Any]:
    asked: ChildrenQuery = call.query
    after = decode_cursor(asked.cursor, Count) or 0
    page = call.service.details.children(_run_id(call), after=after, limit=asked.limit)
    return {"runs": to_json(page.runs), "next": encode_cursor(page.next)}


class EventsQuery(Query, frozen=True):
    """Which events to list."""

    # Such as attempt.failed; several match any of them.
    type: tuple[str, ...] = ()
    # Behind this event, by its number.
    after: Count = 0
    limit: Limit = 200
    cursor: str = ""


def list_events(call: Call) -> Any:
    asked = call.query
    after = decode_cursor(asked.cursor, Count)
    page = call.service.details.events(
        _run_id(call), types=asked.type, after=asked.after if after is None else after, limit=asked.limit
    )
    # The events are JSON already.
    events = [msgspec.Raw(line) for line in page.lines]
    return {"run_id": page.run_id, "events": events, "next": encode_cursor(page.next)}


class StoryQuery(Query, frozen=True):
    """Which part of the story to show."""

    # A step, a part of one, or a matrix.
    step: str = ""
    # Also the stories of the runs that it called.
    tree: bool = False
    limit: Limit = 1000
    cursor: str = ""


def show_story(call: Call) -> Any:
    asked = call.query
    after = decode_cursor(asked.cursor, Count) or 0
    page = call.service.details.story(_run_id(call), asked.step, is_tree=asked.tree, after=after, limit=asked.limit)
    return {"run_id": page.run_id, "lines": page.lines, "next": encode_cursor(page.next)}


def show_output(call: Call) -> Any:
    """The value alone, as `mulligan show RUN --output STEP --json` prints it."""
    found = call.service.runs.output(_run_id(call), call.path["place"])
    return Answer(
        msgspec.json.encode(found.value),
        # The step failed because `validate` rejected this output.
        headers={"Mulligan-Output": "rejected" if found.is_refused else "accepted"},
    )


def list_artifacts(call: Call) -> Any:
    run_id = _run_id(call)
    return {"run_id": run_id, "artifacts": to_json(call.service.details.artifacts(run_id))}


def read_artifact(call: Call) -> Any:
    found = call.service.details.artifact(_run_id(call), call.path["sha256"])
    part = read_range(call.headers.get("range", ""), found.size) if found.size else None
    start, end = part or (0, found.size)
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Length": str(end - start),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(unquote(found.file))}",
        "ETag": f'"{found.sha256}"',
        **({"Content-Range": part.header(found.size)} if part else {}),
    }
    if found.path is None:
        return Streamed(iter([found.data[start:end]]), 206 if part else 200, headers)
    return Streamed(_file_pieces(found.path, start, end), 206 if part else 200, headers)


def _file_pieces(path: Path, start: int, end: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(start)
        left = end - start
        while left and (data := file.read(min(READ_BYTES, left))):
            left -= len(data)
            yield data


def list_data(call: Call) -> Any:
    run_id = _run_id(call)
    return {"run_id": run_id, "data": to_json(call.service.runs.data(run_id))}


def read_data(call: Call) -> Any:
    values = {one.name: one.value for one in call.service.runs.data(_run_id(call))}
    return Answer(msgspec.json.encode(choose(values, call.path["name"])))


class PictureQuery(Query, frozen=True):
    """How to draw it."""

    # Each step of a matrix, and each of many similar steps.
    expand: bool = False


def draw_run(call: Call) -> Answer:
    workflow, statuses = call.service.runs.drawn(_run_id(call))
    drawing = call.service.workflows.draw(workflow, "svg", statuses, is_expanded=call.query.expand)
    return Answer(drawing.encode(), headers={"Content-Security-Policy": SVG_POLICY}, media=SVG)


def show_report(call: Call) -> Answer:
    found = call.service.runs.report(_run_id(call), datetime.now(UTC))
    page = call.service.runs.report_page(found, folder=None, home_option="")
    return Answer(page.encode("utf-8", "replace"), headers={"Content-Security-Policy": REPORT_POLICY}, media=HTML)


def report_data(call: Call) -> Any:
    return to_json(call.service.runs.report(_run_id(call), datetime.now(UTC)))


# -- logs ------------------------------------------------------------------------------------------------------------


class LogQuery(Query, frozen=True):
    """Which log to read."""

    stream: Literal["stdout", "stderr"] = "stdout"
    # Go on while it is written, until the attempt has ended. The header Range counts for nothing then.
    follow: bool = False
    # With `follow`: begin behind so many bytes.
    start: Count = 0


async def _log_key(call: Call) -> LogKey:
    run_id = _run_id(call)
    place = await call.read(lambda service: service.runs.find_place(run_id, call.path["place"]))
    return LogKey(run_id, place, int(call.path["attempt"]), call.query.stream)


async def read_log(call: Call) -> Any:
    key = await _log_key(call)
    size = await call.read(lambda service: _log_size(service, key))
    if call.query.follow:
        return Streamed(_follow(call, key, call.query.start), media=TEXT)
    if call.query.start:
        raise InputInvalid("'start' is for a log that is followed", hint="send the header Range", parameter="start")
    part = read_range(call.headers.get("range", ""), size) if size else None
    start, end = part or (0, size)
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Length": str(end - start),
        **({"Content-Range": part.header(size)} if part else {}),
    }
    return Streamed(_log_pieces(call, key, start, end), 206 if part else 200, headers, TEXT)


def _log_size(service: Service, key: LogKey) -> int:
    """How many bytes there are. `UnknownRun`, `UnknownAttempt`."""
    service.runs.record(key.run_id)
    found = service.logs.ranges.size(key)
    if found is None:
        # It wrote nothing yet, or there was no such attempt: then this refuses it.
        service.logs.follow_log(key)
    return found.size if found is not None else 0


async def _log_pieces(call: Call, key: LogKey, start: int, end: int) -> AsyncIterator[bytes]:
    while start < end:
        data = await call.read(partial(_read_piece, key, start, min(start + READ_BYTES, end)))
        if not data:
            return
        yield data
        start += len(data)


def _read_piece(key: LogKey, start: int, end: int, service: Service) -> bytes:
    return service.logs.ranges.read(key, start, end)


async def _follow(call: Call, key: LogKey, start: int) -> AsyncIterator[bytes]:
    follower = await call.read(lambda service: service.logs.follow_log(key, start))
    while True:
        if data := await call.read(lambda _: follower.read()):
            yield data
        if follower.is_over:
            return
        if not data:
            await asyncio.sleep(FOLLOW_SECONDS)


class LogIndexQuery(Query, frozen=True):
    """Which log to count."""

    stream: Literal["stdout", "stderr"] = "stdout"


async def index_log(call: Call) -> LogIndex:
    key = await _counted(call)
    found: LogIndex = await call.read(lambda service: service.logs.lines.index(key))
    return found


async def _counted(call: Call) -> LogKey:
    """The log that a call names, after its lines were counted, which may take many reads."""
    key = await _log_key(call)
    await call.read(lambda service: _log_size(service, key))
    while not await call.read(lambda service: service.logs.lines.count(key)):
        pass
    return key


class LogSearchQuery(Query, frozen=True):
    """Which log to search, and for what."""

    # Without capital letters it is found in any case. Without a text nothing is found.
    text: Annotated[str, msgspec.Meta(max_length=200)] = ""
    stream: Literal["stdout", "stderr"] = "stdout"
    # Where to begin: `next` of the answer before.
    start: Count = 0


async def search_log(call: Call) -> LogMatches:
    asked: LogSearchQuery = call.query
    key = await _counted(call)
    found: LogMatches = await call.read(lambda service: service.logs.lines.search(key, asked.text, asked.start))
    return found


# -- the types of the answers ------------------------------------------------------------------------------------------

Cursor = str | None
# By `to_json`: the driver and what waits for a person in short.
ASKED = part_type(WaitingPlace, "Asked", "run_id place kind")
RUN_IN_LIST = part_type(RunLine, "RunInList", driver=RunDriver | None, asks=list[ASKED], spent=SpentView | None)  # type: ignore[valid-type]
RUNS_PAGE = answer_type(
    "RunsPage",
    "Runs, the newest first. With `counts` also how many match, and how many runs there are with each status.",
    runs=list[RUN_IN_LIST],  # type: ignore[valid-type]
    next=Cursor,
    # At most 10,000: counting takes time for each of them.
    total=int | msgspec.UnsetType,
    statuses=dict[str, int] | msgspec.UnsetType,
)
_STEP, _MATRIX = ({one.name: one.type for one in msgspec.structs.fields(kind)} for kind in (StepView, MatrixView))
STEP_OR_MATRIX = answer_type(
    "StepOrMatrix",
    "One step with every attempt at it; or a matrix, which has `statuses`, `failures`, `combinations` and `steps`.",
    **{
        name: type_ if name in _STEP and name in _MATRIX else type_ | msgspec.UnsetType
        for name, type_ in (_MATRIX | _STEP).items()
    },
)
MOMENT = part_type(
    RunMoment,
    "RunMoment",
    " ".join(name for name in RunMoment.__struct_fields__ if name != "is_whole"),
    run=dict[str, Any],
)
EVENT = answer_type(
    "EventView",
    "An event as it is stored. `fact` has a `type`, and what belongs to it.",
    v=int,
    seq=int,
    at=datetime,
    fact=dict[str, Any],
    caused_by=int | msgspec.UnsetType,
)
EVENTS_PAGE = answer_type(
    "EventsPage",
    "Events in their order. A page with `next` may be short, or empty: many events may be of other types.",
    run_id=int,
    events=list[EVENT],  # type: ignore[valid-type]
    next=Cursor,
)
STORY_LINE = answer_type(
    "StoryLineView",
    "A sentence of the story. What is waited for now has no number and no time, and `waiting_for`.",
    run_id=int,
    seq=int | None,
    at=datetime | None,
    place=str,
    text=str,
    tone=Literal["plain", "good", "bad", "try", "wait"],
    tail=list[str] | msgspec.UnsetType,
    # The place as people know it, if that is not `place`: `load[west]`.
    name=str | msgspec.UnsetType,
    waiting_for=Wait | msgspec.UnsetType,
)
STORY_ANSWER = answer_type(
    "StoryAnswer",
    "The story of a run; its last page ends with what is waited for now.",
    run_id=int,
    lines=list[STORY_LINE],  # type: ignore[valid-type]
    next=Cursor,
)
RANGE = (("Range", "One range of bytes, such as bytes=0-999 or bytes=-500."),)
_RUN = "runs/{run_id:int}"
ROUTES = (
    Route(
        "GET",
        "runs",
        list_runs,
        "read",
        "List runs, the newest first.",
        query=RunsQuery,
        answer=RUNS_PAGE,
        is_shared=True,
    ),
    Route("GET", _RUN, show_run, "read", "Show a run without its steps.", answer=RUN_HEAD),
    Route(
        "GET",
        f"{_RUN}/full",
        show_whole_run,
        "read",
        "Show a run of at most 2,000 steps with all of them, their attempts, and the runs that it called.",
        answer=WHOLE_RUN,
    ),
    Route(
        "GET",
        f"{_RUN}/steps",
        list_steps,
        "read",
        "List the steps of a run.",
        query=StepsQuery,
        answer=part_type(StepPage, "StepsPage", next=Cursor),
    ),
    Route(
        "GET",
        f"{_RUN}/at/{{seq:int}}",
        show_moment,
        "read",
        "Show a run as it was after one of its events: its steps, what it waited for, and what came next.",
        answer=MOMENT,
        problems=(422,),
    ),
    Route(
        "GET",
        f"{_RUN}/mosaic",
        show_mosaic,
        "read",
        "Show how all steps stand, in one short answer.",
        answer=Mosaic,
    ),
    Route(
        "GET",
        f"{_RUN}/timeline",
        show_timeline,
        "read",
        "Show when the steps ran and what they waited for, in the order in which they started.",
        query=TimelineQuery,
        answer=Timeline,
    ),
    Route(
        "GET",
        f"{_RUN}/steps/{{step}}",
        show_step,
        "read",
        "Show a step with every attempt at it, or a matrix with its steps.",
        answer=STEP_OR_MATRIX,
    ),
    Route(
        "GET",
        f"{_RUN}/steps/{{step}}/items",
        list_items,
        "read",
        "List the items of a map step, or the steps of a matrix.",
        query=ItemsQuery,
        answer=part_type(ItemPage, "ItemsPage", next=Cursor),
        problems=(409,),
    ),
    Route(
        "GET",
        f"{_RUN}/steps/{{step}}/items/{{index:int}}",
        show_item,
        "read",
        "Show an item with every attempt at it.",
        answer=Item,
        problems=(409,),
    ),
    Route(
        "GET",
        f"{_RUN}/steps/{{step}}/failure_handler",
        show_failure_handlers,
        "read",
        "Show what deals with a failure of a step: retry rules, handler, triage, failure edges.",
        answer=FailureHandlers,
    ),
    Route(
        "GET",
        f"{_RUN}/attempts/{{place}}/{{attempt:int}}/log",
        read_log,
        "read",
        "Read what an attempt wrote, or a range of it, or follow it.",
        query=LogQuery,
        media=TEXT,
        other_statuses=(206,),
        request_headers=RANGE,
        problems=(416,),
    ),
    Route(
        "GET",
        f"{_RUN}/attempts/{{place}}/{{attempt:int}}/log/index",
        index_log,
        "read",
        "Count the lines of a log, and those before each of its blocks: what is needed to read any part of it.",
        query=LogIndexQuery,
        answer=LogIndex,
    ),
    Route(
        "GET",
        f"{_RUN}/attempts/{{place}}/{{attempt:int}}/log/matches",
        search_log,
        "read",
        "Find the lines of a log that have a text, in at most 32 MiB of it; `next` says where to go on.",
        query=LogSearchQuery,
        answer=LogMatches,
    ),
    Route(
        "GET",
        f"{_RUN}/children",
        list_children,
        "read",
        "List the runs that a run called.",
        query=ChildrenQuery,
        answer=RUNS_PAGE,
    ),
    Route(
        "GET",
        f"{_RUN}/events",
        list_events,
        "read",
        "List the events of a run as they are stored.",
        query=EventsQuery,
        answer=EVENTS_PAGE,
    ),
    Route(
        "GET",
        f"{_RUN}/story",
        show_story,
        "read",
        "Explain what happened in a run, and what it waits for.",
        query=StoryQuery,
        answer=STORY_ANSWER,
    ),
    Route(
        "GET",
        f"{_RUN}/outputs/{{place}}",
        show_output,
        "read",
        "Give the whole output of a step or of an item.",
        answer=Any,
        problems=(410,),
    ),
    Route(
        "GET",
        f"{_RUN}/artifacts",
        list_artifacts,
        "read",
        "List the files that the attempts of a run kept.",
        answer=answer_type(
            "ArtifactsAnswer", "The files that the attempts of a run kept.", run_id=int, artifacts=list[KeptFile]
        ),
        is_slow=True,
    ),
    Route(
        "GET",
        f"{_RUN}/artifacts/{{sha256}}",
        read_artifact,
        "read",
        "Read a file that a run refers to, or a range of it.",
        media="application/octet-stream",
        other_statuses=(206,),
        request_headers=RANGE,
        problems=(410, 416),
    ),
    Route(
        "GET",
        f"{_RUN}/data",
        list_data,
        "read",
        "List the values that the steps of a run have set.",
        answer=answer_type(
            "DataAnswer", "The values that the steps of a run have set, by name.", run_id=int, data=list[DataEntry]
        ),
    ),
    Route("GET", f"{_RUN}/data/{{name}}", read_data, "read", "Give one of these values.", answer=Any),
    # What has each step of a run in it takes seconds for one that is large.
    Route(
        "GET",
        f"{_RUN}/picture.svg",
        draw_run,
        "read",
        "Draw a run as SVG.",
        query=PictureQuery,
        media=SVG,
        is_slow=True,
    ),
    Route("GET", f"{_RUN}/report", show_report, "read", "Report on a run as one HTML page.", media=HTML, is_slow=True),
    Route("GET", f"{_RUN}/report.json", report_data, "read", "Report on a run as data.", answer=Report, is_slow=True),
)
