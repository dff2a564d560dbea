"""Schedules: published workflows that are started on time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from mulligan.api.areas.catalogue import Deleted, DryRunQuery
from mulligan.api.http.entity_tags import expected_revision, with_revision
from mulligan.api.http.routing import Answer, Body, Call, Query, Routes
from mulligan.service.server.schedules.forms import ScheduleForm
from mulligan.service.server.schedules.past_instants import PastInstants
from mulligan.service.server.schedules.schedules import Backfill, ScheduleView

ROUTES = Routes()

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


@ROUTES.add("GET", "schedules", "read")
def list_schedules(call: Call) -> SchedulesPage:
    """List the schedules: what each did, and its next instants."""
    return SchedulesPage(call.service.schedules.all(), None)


@ROUTES.add("GET", "schedules/{name}", "read", answer=ScheduleView)
def show_schedule(call: Call, name: str) -> Answer:
    """One schedule: what it did, and its next instants."""
    return with_revision(call.service.schedules.show(name))


class PastQuery(Query, frozen=True):
    """How many of the newest."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 200


@ROUTES.add("GET", "schedules/{name}/past", "read")
def show_past(call: Call, name: str, query: PastQuery) -> PastInstants:
    """What came of the past instants of a schedule, the newest first: the run of each, or why there is none."""
    return call.service.schedules.past(name, limit=query.limit)


@ROUTES.add("PUT", "schedules/{name}", "write", answer=ScheduleView, problems=(409, 412))
def put_schedule(call: Call, name: str, query: DryRunQuery, body: ScheduleForm) -> Answer:
    """Create or change a schedule. A pause survives. If-Match may have the revision that it replaces."""
    expected = expected_revision(call.headers, without=None)
    return with_revision(call.service.schedules.put(name, body, expected=expected, dry_run=query.dry_run))


@ROUTES.add("DELETE", "schedules/{name}", "write", problems=(409,))
def delete_schedule(call: Call, name: str) -> Deleted:
    """Remove a schedule. Its runs stay."""
    call.service.schedules.delete(name)
    return Deleted(name, is_deleted=True)


@ROUTES.add("POST", "schedules/{name}:pause", "run", answer=ScheduleView, problems=(409, 412))
def pause_schedule(call: Call, name: str, body: Reason) -> Answer:
    """Start nothing more until somebody resumes it."""
    return with_revision(call.service.schedules.pause(name, body.reason))


@ROUTES.add("POST", "schedules/{name}:resume", "run", answer=ScheduleView, problems=(409, 412))
def resume_schedule(call: Call, name: str, body: Reason) -> Answer:
    """Go on with the next instant. What passed during the pause is not made up for."""
    return with_revision(call.service.schedules.resume(name, body.reason))


@ROUTES.add("POST", "schedules/{name}:backfill", "run", problems=(409, 412))
def backfill_schedule(call: Call, name: str, body: BackfillRange) -> Backfill:
    """Start the instants of a past range that have no run yet."""
    return call.service.schedules.backfill(name, body.begin, body.end, dry_run=body.dry_run)
