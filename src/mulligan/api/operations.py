"""The store as a whole: circuit breakers, statistics, usage, workers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from mulligan.api import run_answers as shapes
from mulligan.api.routing import Body, Call, Query, Route
from mulligan.errors import InputInvalid
from mulligan.service import parse_time, to_json

RunId = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


def list_breakers(call: Call) -> dict[str, Any]:
    return {"breakers": to_json(call.service.list_breakers()), "next": None}


class ResetBody(Body, frozen=True):
    """Why the breaker is closed."""

    reason: str = ""
    dry_run: bool = False


def reset_breaker(call: Call) -> dict[str, Any]:
    asked: ResetBody = call.body
    found = call.service.reset_breaker(call.path["name"], is_dry=asked.dry_run)
    return {"dry_run": asked.dry_run, "breaker": to_json(found)}


class StatsQuery(Query, frozen=True):
    """Of which runs: of one, or of those of a workflow and since a time (2026-11-01T08:00:00Z, or how long ago: 7d)."""

    run: RunId | None = None
    workflow: str = ""
    since: str = ""


def show_stats(call: Call) -> dict[str, Any]:
    asked: StatsQuery = call.query
    if asked.run is not None and (asked.workflow or asked.since):
        hint = "leave out the run, or the others"
        raise InputInvalid("'workflow' and 'since' cannot be combined with 'run'", hint=hint, parameter="run")
    since = parse_time(asked.since, datetime.now(UTC)) if asked.since else None
    found = call.service.stats(asked.run, workflow=asked.workflow or None, since=since)
    return {"stats": to_json(found), "next": None}


class UsageQuery(Query, frozen=True):
    """Of which run."""

    run: RunId


def show_usage(call: Call) -> dict[str, Any]:
    run_id = call.query.run
    return {"run_id": run_id, "usage": to_json(call.service.usage(run_id)), "next": None}


def list_workers(call: Call) -> dict[str, Any]:
    return {"workers": to_json(call.service.list_workers()), "next": None}


ROUTES = (
    Route("GET", "breakers", list_breakers, "read", "List the circuit breakers.", answer=shapes.BreakersAnswer),
    Route(
        "POST",
        "breakers/{name}:reset",
        reset_breaker,
        "run",
        "Close a circuit breaker, so that waiting tasks continue.",
        body=ResetBody,
        answer=shapes.BreakerReset,
    ),
    Route(
        "GET",
        "stats",
        show_stats,
        "read",
        "Count how often retries, handlers, triage and routes were tried and worked.",
        query=StatsQuery,
        answer=shapes.StatsAnswer,
    ),
    Route(
        "GET",
        "usage",
        show_usage,
        "read",
        "Compare what the steps of a run asked for with what they used.",
        query=UsageQuery,
        answer=shapes.UsageAnswer,
    ),
    Route(
        "GET", "workers", list_workers, "read", "List the workers, and what each runs now.", answer=shapes.WorkersAnswer
    ),
)
