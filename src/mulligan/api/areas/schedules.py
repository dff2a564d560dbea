"""Schedules: published workflows that are started on time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from mulligan.api.areas.catalogue import Deleted, DryRunQuery
from mulligan.api.http.entity_tags import entity_tag, expected_revision
from mulligan.api.http.routing import Answer, Body, Call, Query, Route
from mulligan.service.rendering.json_output import to_json
from mulligan.service.server.schedules.forms import ScheduleForm
from mulligan.service.server.schedules.past_instants import PastInstants
from mulligan.service.server.schedules.schedules import Backfill, ScheduleView

Time = Annotated[datetime, msgspec.Meta(tz=True)]


class Reason(Body, frozen=True):
    """Why; for the people who look at it later."""

    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class BackfillRange(Body, frozen=True, rename={"begin": "from", "end": "to"}):
    """The instants from the first time up to the second. With `dry_run` they are only listed."""

    begin: Time
    end: Time
    dry_run: bool = False


class SchedulesPage(msgspec.Struct, frozen=True):
    schedules: list[ScheduleView]
    next: None


def list_schedules(call: Call) -> Any:
    return {"schedules": to_json(call.service.schedules.all()), "next": None}


def show_schedule(call: Call) -> Answer:
    return _view(call.service.schedules.show(call.path["name"]))


class PastQuery(Query, frozen=True):
    """How many of the newest."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 200


def show_past(call: Call) -> Any:
    return to_json(call.service.schedules.past(call.path["name"], limit=call.query.limit))


def put_schedule(call: Call) -> Answer:
    expected = expected_revision(call.headers, without=None)
    return _view(
        call.service.schedules.put(call.path["name"], call.body, expected=expected, dry_run=call.query.dry_run)
    )


def delete_schedule(call: Call) -> Any:
    call.service.schedules.delete(call.path["name"])
    return {"name": call.path["name"], "is_deleted": True}


def pause_schedule(call: Call) -> Answer:
    return _view(call.service.schedules.pause(call.path["name"], call.body.reason))


def resume_schedule(call: Call) -> Answer:
    return _view(call.service.schedules.resume(call.path["name"], call.body.reason))


def backfill_schedule(call: Call) -> Any:
    body: BackfillRange = call.body
    return to_json(call.service.schedules.backfill(call.path["name"], body.begin, body.end, dry_run=body.dry_run))


def _view(found: ScheduleView) -> Answer:
    return Answer(to_json(found), headers=entity_tag(found.revision))


ROUTES = (
    Route(
        "GET",
        "schedules",
        list_schedules,
        "read",
        "List the schedules: what each did, and its next instants.",
        answer=SchedulesPage,
    ),
    Route(
        "GET",
        "schedules/{name}",
        show_schedule,
        "read",
        "One schedule: what it did, and its next instants.",
        answer=ScheduleView,
    ),
    Route(
        "GET",
        "schedules/{name}/past",
        show_past,
        "read",
        "What came of the past instants of a schedule, the newest first: the run of each, or why there is none.",
        query=PastQuery,
        answer=PastInstants,
    ),
    Route(
        "PUT",
        "schedules/{name}",
        put_schedule,
        "write",
        "Create or change a schedule. A pause survives. If-Match may have the revision that it replaces.",
        query=DryRunQuery,
        body=ScheduleForm,
        answer=ScheduleView,
        problems=(409, 412),
    ),
    Route(
        "DELETE",
        "schedules/{name}",
        delete_schedule,
        "write",
        "Remove a schedule. Its runs stay.",
        answer=Deleted,
        problems=(409,),
    ),
    Route(
        "POST",
        "schedules/{name}:pause",
        pause_schedule,
        "run",
        "Start nothing more until somebody resumes it.",
        body=Reason,
        answer=ScheduleView,
        problems=(409, 412),
    ),
    Route(
        "POST",
        "schedules/{name}:resume",
        resume_schedule,
        "run",
        "Go on with the next instant. What passed during the pause is not made up for.",
        body=Reason,
        answer=ScheduleView,
        problems=(409, 412),
    ),
    Route(
        "POST",
        "schedules/{name}:backfill",
        backfill_schedule,
        "run",
        "Start the instants of a past range that have no run yet.",
        body=BackfillRange,
        answer=Backfill,
        problems=(409, 412),
    ),
)
