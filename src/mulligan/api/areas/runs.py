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
from mulligan.api.http.byte_ranges import asked_range
from mulligan.api.http.entity_tags import entity_tag, unchanged
from mulligan.api.http.paging import Count, Limit, decode_cursor, encode_cursor
from mulligan.api.http.routing import Answer, AnswerBody, Call, Query, Routes, Streamed
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

ROUTES = Routes()

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


# -- the types of the answers ------------------------------------------------------------------------------------------

Cursor = str | None
# By `to_json`: the driver and what waits for a person in short.
ASKED = part_type(WaitingPlace, "Asked", "run_id place kind")
RUN_IN_LIST = part_type(RunLine, "RunInList", driver=RunDriver | None, asks=list[ASKED], spent=SpentView | None)  # type: ignore[valid-type]


class RunsPage(AnswerBody, frozen=True):
    """Runs, the newest first. With `counts` also how many match, and how many runs there are with each status."""

    runs: list[RUN_IN_LIST]  # type: ignore[valid-type]
    next: Cursor
    # At most 10,000: counting takes time for each of them.
    total: int | msgspec.UnsetType = msgspec.UNSET
    statuses: dict[str, int] | msgspec.UnsetType = msgspec.UNSET


_STEP, _MATRIX = ({one.name: one.type for one in msgspec.structs.fields(kind)} for kind in (StepView, MatrixView))
STEP_OR_MATRIX = msgspec.defstruct(
    "StepOrMatrix",
    [
        (name, type_) if name in _STEP and name in _MATRIX else (name, type_ | msgspec.UnsetType, msgspec.UNSET)
        for name, type_ in (_MATRIX | _STEP).items()
    ],
    bases=(AnswerBody,),
    kw_only=True,
    frozen=True,
    namespace={
        "__doc__": "One step with every attempt at it; or a matrix, which has `statuses`, `failures`, `combinations` "
        "and `steps`."
    },
)
MOMENT = part_type(
    RunMoment,
    "RunMoment",
    " ".join(name for name in RunMoment.__struct_fields__ if name != "is_whole"),
    run=dict[str, Any],
)


class EventView(AnswerBody, frozen=True):
    """An event as it is stored. `fact` has a `type`, and what belongs to it."""

    v: int
    seq: int
    at: datetime
    fact: dict[str, Any]
    caused_by: int | msgspec.UnsetType = msgspec.UNSET


class EventsPage(AnswerBody, frozen=True):
    """Events in their order. A page with `next` may be short, or empty: many events may be of other types."""

    run_id: int
    events: list[EventView]
    next: Cursor


class StoryLineView(AnswerBody, frozen=True):
    """A sentence of the story. What is waited for now has no number and no time, and `waiting_for`."""

    run_id: int
    seq: int | None
    at: datetime | None
    place: str
    text: str
    tone: Literal["plain", "good", "bad", "try", "wait"]
    tail: list[str] | msgspec.UnsetType = msgspec.UNSET
    # The place as people know it, if that is not `place`: `load[west]`.
    name: str | msgspec.UnsetType = msgspec.UNSET
    waiting_for: Wait | msgspec.UnsetType = msgspec.UNSET


class StoryAnswer(AnswerBody, frozen=True):
    """The story of a run; its last page ends with what is waited for now."""

    run_id: int
    lines: list[StoryLineView]
    next: Cursor


class ArtifactsAnswer(AnswerBody, frozen=True):
    """The files that the attempts of a run kept."""

    run_id: int
    artifacts: list[KeptFile]


class DataAnswer(AnswerBody, frozen=True):
    """The values that the steps of a run have set, by name."""

    run_id: int
    data: list[DataEntry]


RANGE = (("Range", "One range of bytes, such as bytes=0-999 or bytes=-500."),)


# -- the list --------------------------------------------------------------------------------------------------------


class RunsQuery(RunFilters, frozen=True):
    """Which runs to list. A parameter that is given several times matches any of its values; labels and inputs all."""

    # Also runs that other runs called.
    children: bool = False
    # Also how many match, and how many runs there are with each status: of more than 10,000 runs up to 10 s ago.
    counts: bool = False
    limit: Limit = 50
    cursor: str = ""


@ROUTES.add("GET", "runs", "read", answer=RunsPage, is_shared=True)
def list_runs(call: Call, query: RunsQuery) -> Answer:
    """List runs, the newest first."""
    before = decode_cursor(query.cursor, Count)
    wanted = run_query(query, with_children=query.children, limit=query.limit, before=before)
    page = call.service.runs.page(wanted)
    found: dict[str, Any] = {"runs": to_json(page.runs), "next": encode_cursor(page.next)}
    if query.counts:
        found |= {"total": call.service.runs.count(wanted), "statuses": call.service.runs.status_counts()}
    # The time of an unfinished run passes, and its driver may die without a word.
    has_ended = all(run.status in RUN_ENDED for run in page.runs)
    return Answer(found, is_timeless=has_ended and not _is_relative(query.since) and not _is_relative(query.until))


def _is_relative(time: str) -> bool:
    """Whether it is another moment tomorrow, such as `2h`."""
    now = datetime.now(UTC)
    return bool(time) and parse_time(time, now) != parse_time(time, now + timedelta(days=1))


# -- one run ---------------------------------------------------------------------------------------------------------


@ROUTES.add("GET", "runs/{run_id:int}", "read", answer=RUN_HEAD)
def show_run(call: Call, run_id: int) -> Answer:
    """Show a run without its steps."""
    version = call.service.details.etag(run_id)
    if same := unchanged(call, version):
        return same
    return Answer(part(call.service.details.head(run_id), RUN_HEAD), headers={"ETag": f'"{version}"'})


@ROUTES.add("GET", "runs/{run_id:int}/full", "read", answer=WHOLE_RUN)
def show_whole_run(call: Call, run_id: int) -> Any:
    """Show a run of at most 2,000 steps with all of them, their attempts, and the runs that it called."""
    return part(call.service.details.whole(run_id), WHOLE_RUN)


class StepsQuery(Query, frozen=True):
    """Which steps to list."""

    status: tuple[str, ...] = ()
    # A part of the name.
    text: str = ""
    limit: Limit = 200
    cursor: str = ""
    # Leave out so many of them.
    skip: Count = 0


@ROUTES.add("GET", "runs/{run_id:int}/steps", "read", answer=part_type(StepPage, "StepsPage", next=Cursor))
def list_steps(call: Call, run_id: int, query: StepsQuery) -> Any:
    """List the steps of a run."""
    if same := unchanged(call, call.service.runs.record(run_id).seq):
        return same
    wanted = StepQuery(query.status, query.text, query.limit, decode_cursor(query.cursor, str) or "", query.skip)
    page = call.service.runs.step_page(run_id, wanted)
    return Answer({**to_json(page), "next": encode_cursor(page.next)}, headers=entity_tag(page.seq))


@ROUTES.add("GET", "runs/{run_id:int}/at/{seq:int}", "read", answer=MOMENT, problems=(422,))
def show_moment(call: Call, run_id: int, seq: int) -> RunMoment:
    """Show a run as it was after one of its events: its steps, what it waited for, and what came next."""
    past = call.service.past
    return past.moment(run_id, seq, is_whole=past.is_small(run_id))


@ROUTES.add("GET", "runs/{run_id:int}/mosaic", "read", answer=Mosaic)
def show_mosaic(call: Call, run_id: int) -> Answer:
    """Show how all steps stand, in one short answer."""
    if same := unchanged(call, call.service.runs.record(run_id).seq):
        return same
    found = call.service.details.mosaic(run_id)
    return Answer(found, headers=entity_tag(found.seq))


class TimelineQuery(Query, frozen=True):
    """Which rows to show."""

    # The number of the first row, from 0.
    first: Count = 0
    limit: Limit = 50
    # Only steps that did not complete.
    hide_completed: bool = False


@ROUTES.add("GET", "runs/{run_id:int}/timeline", "read")
def show_timeline(call: Call, run_id: int, query: TimelineQuery) -> Timeline:
    """Show when the steps ran and what they waited for, in the order in which they started."""
    return call.service.details.timeline(
        run_id, first=query.first, limit=query.limit, hide_completed=query.hide_completed
    )


@ROUTES.add("GET", "runs/{run_id:int}/steps/{step}", "read", answer=STEP_OR_MATRIX)
def show_step(call: Call, run_id: int, step: str) -> Any:
    """Show a step with every attempt at it, or a matrix with its steps."""
    return call.service.details.step(run_id, step)


class ItemsQuery(Query, frozen=True):
    """Which items to list."""

    status: tuple[str, ...] = ()
    limit: Limit = 200
    # How many to leave out, of those that match and are behind the cursor.
    offset: Count = 0
    # Values, outputs and messages as texts of at most 200 characters.
    brief: bool = False
    cursor: str = ""


@ROUTES.add(
    "GET",
    "runs/{run_id:int}/steps/{step}/items",
    "read",
    answer=part_type(ItemPage, "ItemsPage", next=Cursor),
    problems=(409,),
)
def list_items(call: Call, run_id: int, step: str, query: ItemsQuery) -> Any:
    """List the items of a map step, or the steps of a matrix."""
    after = decode_cursor(query.cursor, Count)
    wanted = ItemQuery(query.status, -1 if after is None else after, query.offset, query.limit, query.brief)
    page = call.service.runs.item_page(run_id, step, wanted)
    return Answer({**to_json(page), "next": encode_cursor(page.next)}, headers=entity_tag(page.seq))


@ROUTES.add("GET", "runs/{run_id:int}/steps/{step}/items/{index:int}", "read", problems=(409,))
def show_item(call: Call, run_id: int, step: str, index: int) -> Item:
    """Show an item with every attempt at it."""
    return call.service.runs.item_history(run_id, step, index)


@ROUTES.add("GET", "runs/{run_id:int}/steps/{step}/failure_handler", "read")
def show_failure_handlers(call: Call, run_id: int, step: str) -> FailureHandlers:
    """Show what deals with a failure of a step: retry rules, handler, triage, failure edges."""
    return call.service.details.failure_handlers(run_id, step)


# -- logs ------------------------------------------------------------------------------------------------------------


class LogQuery(Query, frozen=True):
    """Which log to read."""

    stream: Literal["stdout", "stderr"] = "stdout"
    # Go on while it is written, until the attempt has ended. The header Range counts for nothing then.
    follow: bool = False
    # With `follow`: begin behind so many bytes.
    start: Count = 0


async def _log_key(call: Call) -> LogKey:
    run_id = int(call.path["run_id"])
    place = await call.read(lambda service: service.runs.find_place(run_id, call.path["place"]))
    return LogKey(run_id, place, int(call.path["attempt"]), call.query.stream)


@ROUTES.add(
    "GET",
    "runs/{run_id:int}/attempts/{place}/{attempt:int}/log",
    "read",
    media=TEXT,
    other_statuses=(206,),
    request_headers=RANGE,
    problems=(416,),
)
async def read_log(call: Call, query: LogQuery) -> Any:
    """Read what an attempt wrote, or a range of it, or follow it."""
    key = await _log_key(call)
    size = await call.read(lambda service: _log_size(service, key))
    if query.follow:
        return Streamed(_follow(call, key, query.start), media=TEXT)
    if query.start:
        raise InputInvalid("'start' is for a log that is followed", hint="send the header Range", parameter="start")
    asked = asked_range(call.headers, size)
    return Streamed(_log_pieces(call, key, asked.start, asked.end), asked.status, asked.headers, TEXT)


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


@ROUTES.add("GET", "runs/{run_id:int}/attempts/{place}/{attempt:int}/log/index", "read", answer=LogIndex)
async def index_log(call: Call, query: LogIndexQuery) -> Any:
    """Count the lines of a log, and those before each of its blocks: what is needed to read any part of it."""
    key = await _counted(call)
    return await call.read(lambda service: service.logs.lines.index(key))


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


@ROUTES.add("GET", "runs/{run_id:int}/attempts/{place}/{attempt:int}/log/matches", "read", answer=LogMatches)
async def search_log(call: Call, query: LogSearchQuery) -> Any:
    """Find the lines of a log that have a text, in at most 32 MiB of it; `next` says where to go on."""
    key = await _counted(call)
    return await call.read(lambda service: service.logs.lines.search(key, query.text, query.start))


# -- the runs that it called, events, outputs and files ----------------------------------------------------------------


class ChildrenQuery(Query, frozen=True):
    """Which page to list."""

    limit: Limit = 50
    cursor: str = ""


@ROUTES.add("GET", "runs/{run_id:int}/children", "read", answer=RunsPage)
def list_children(call: Call, run_id: int, query: ChildrenQuery) -> dict[str, Any]:
    """List the runs that a run called."""
    after = decode_cursor(query.cursor, Count) or 0
    page = call.service.details.children(run_id, after=after, limit=query.limit)
    return {"runs": to_json(page.runs), "next": encode_cursor(page.next)}


class EventsQuery(Query, frozen=True):
    """Which events to list."""

    # Such as attempt.failed; several match any of them.
    type: tuple[str, ...] = ()
    # Behind this event, by its number.
    after: Count = 0
    limit: Limit = 200
    cursor: str = ""


@ROUTES.add("GET", "runs/{run_id:int}/events", "read", answer=EventsPage)
def list_events(call: Call, run_id: int, query: EventsQuery) -> Any:
    """List the events of a run as they are stored."""
    after = decode_cursor(query.cursor, Count)
    page = call.service.details.events(
        run_id, types=query.type, after=query.after if after is None else after, limit=query.limit
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


@ROUTES.add("GET", "runs/{run_id:int}/story", "read", answer=StoryAnswer)
def show_story(call: Call, run_id: int, query: StoryQuery) -> Any:
    """Explain what happened in a run, and what it waits for."""
    after = decode_cursor(query.cursor, Count) or 0
    page = call.service.details.story(run_id, query.step, is_tree=query.tree, after=after, limit=query.limit)
    return {"run_id": page.run_id, "lines": page.lines, "next": encode_cursor(page.next)}


@ROUTES.add("GET", "runs/{run_id:int}/outputs/{place}", "read", answer=Any, problems=(410,))
def show_output(call: Call, run_id: int, place: str) -> Any:
    """Give the whole output of a step or of an item."""
    # The value alone, as `mulligan show RUN --output STEP --json` prints it.
    found = call.service.runs.output(run_id, place)
    return Answer(
        msgspec.json.encode(found.value),
        # The step failed because `validate` rejected this output.
        headers={"Mulligan-Output": "rejected" if found.is_refused else "accepted"},
    )


@ROUTES.add("GET", "runs/{run_id:int}/artifacts", "read", is_slow=True)
def list_artifacts(call: Call, run_id: int) -> ArtifactsAnswer:
    """List the files that the attempts of a run kept."""
    return ArtifactsAnswer(run_id=run_id, artifacts=call.service.details.artifacts(run_id))


@ROUTES.add(
    "GET",
    "runs/{run_id:int}/artifacts/{sha256}",
    "read",
    media="application/octet-stream",
    other_statuses=(206,),
    request_headers=RANGE,
    problems=(410, 416),
)
def read_artifact(call: Call, run_id: int, sha256: str) -> Any:
    """Read a file that a run refers to, or a range of it."""
    found = call.service.details.artifact(run_id, sha256)
    asked = asked_range(call.headers, found.size)
    disposition = f"attachment; filename*=UTF-8''{quote(unquote(found.file))}"
    headers = {**asked.headers, "Content-Disposition": disposition, "ETag": f'"{found.sha256}"'}
    if found.path is None:
        return Streamed(iter([found.data[asked.start : asked.end]]), asked.status, headers)
    return Streamed(_file_pieces(found.path, asked.start, asked.end), asked.status, headers)


def _file_pieces(path: Path, start: int, end: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(start)
        left = end - start
        while left and (data := file.read(min(READ_BYTES, left))):
            left -= len(data)
            yield data


@ROUTES.add("GET", "runs/{run_id:int}/data", "read")
def list_data(call: Call, run_id: int) -> DataAnswer:
    """List the values that the steps of a run have set."""
    return DataAnswer(run_id=run_id, data=call.service.runs.data(run_id))


@ROUTES.add("GET", "runs/{run_id:int}/data/{name}", "read", answer=Any)
def read_data(call: Call, run_id: int, name: str) -> Any:
    """Give one of these values."""
    values = {one.name: one.value for one in call.service.runs.data(run_id)}
    return Answer(msgspec.json.encode(choose(values, name)))


class PictureQuery(Query, frozen=True):
    """How to draw it."""

    # Each step of a matrix, and each of many similar steps.
    expand: bool = False


@ROUTES.add("GET", "runs/{run_id:int}/picture.svg", "read", media=SVG, is_slow=True)
def draw_run(call: Call, run_id: int, query: PictureQuery) -> Answer:
    """Draw a run as SVG."""
    workflow, statuses = call.service.runs.drawn(run_id)
    drawing = call.service.workflows.draw(workflow, "svg", statuses, is_expanded=query.expand)
    return Answer(drawing.encode(), headers={"Content-Security-Policy": SVG_POLICY}, media=SVG)


@ROUTES.add("GET", "runs/{run_id:int}/report", "read", media=HTML, is_slow=True)
def show_report(call: Call, run_id: int) -> Answer:
    """Report on a run as one HTML page."""
    found = call.service.runs.report(run_id, datetime.now(UTC))
    page = call.service.runs.report_page(found, folder=None, home_option="")
    return Answer(page.encode("utf-8", "replace"), headers={"Content-Security-Policy": REPORT_POLICY}, media=HTML)


@ROUTES.add("GET", "runs/{run_id:int}/report.json", "read", is_slow=True)
def report_data(call: Call, run_id: int) -> Report:
    """Report on a run as data."""
    return call.service.runs.report(run_id, datetime.now(UTC))
