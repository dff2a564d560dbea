"""The store as a whole: circuit breakers, statistics, usage, workers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from mulligan.api.http.routing import Body, Call, Query, Route
from mulligan.api.http.struct_types import answer_type
from mulligan.errors import InputInvalid, NotFound, ScopeMissing
from mulligan.service.authoring.values import parse_time
from mulligan.service.driving.workers import WorkerLine
from mulligan.service.host.breakers import Breaker
from mulligan.service.host.doctor import Diagnosis
from mulligan.service.rendering.json_output import to_json
from mulligan.service.runs.statistics.stats import AgentStats, RungStats
from mulligan.service.runs.statistics.trends import RecoveryTrend, Spending, WorkflowUsage
from mulligan.service.runs.statistics.usage import StepUsage

RunId = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


def list_breakers(call: Call) -> dict[str, Any]:
    return {"breakers": to_json(call.service.machine.list_breakers()), "next": None}


class ResetBody(Body, frozen=True):
    """Why the breaker is closed."""

    reason: str = ""
    dry_run: bool = False


def reset_breaker(call: Call) -> dict[str, Any]:
    asked: ResetBody = call.body
    found = call.service.machine.reset_breaker(call.path["name"], is_dry=asked.dry_run)
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
    found = call.service.runs.stats(asked.run, workflow=asked.workflow or None, since=since)
    agents = call.service.runs.agent_stats(asked.run, workflow=asked.workflow or None, since=since)
    return {"stats": to_json(found), "agents": to_json(agents), "next": None}


class TrendQuery(Query, frozen=True):
    """Of the runs of how many weeks, and of which workflow."""

    weeks: Annotated[int, msgspec.Meta(ge=1, le=104)] = 26
    workflow: str = ""


def show_trend(call: Call) -> Any:
    asked: TrendQuery = call.query
    return to_json(call.service.trends.recovery(datetime.now(UTC), weeks=asked.weeks, workflow=asked.workflow))


class UsageQuery(Query, frozen=True):
    """Of which run."""

    run: RunId


def show_usage(call: Call) -> dict[str, Any]:
    run_id = call.query.run
    return {"run_id": run_id, "usage": to_json(call.service.runs.usage(run_id)), "next": None}


class WorkflowUsageQuery(Query, frozen=True):
    """Of how many of its newest runs."""

    runs: Annotated[int, msgspec.Meta(ge=1, le=50)] = 10


def show_workflow_usage(call: Call) -> Any:
    found = call.service.trends.usage(call.path["name"], runs=call.query.runs)
    if not found.run_ids and not found.left_out:
        raise NotFound(f"no run of '{found.workflow[:100]}' has ended", hint="list the runs: GET /api/v1/runs")
    return to_json(found)


class SpendingQuery(Query, frozen=True):
    """Of the runs of how many days."""

    days: Annotated[int, msgspec.Meta(ge=1, le=366)] = 30


def show_spending(call: Call) -> Any:
    return to_json(call.service.trends.spending(datetime.now(UTC), days=call.query.days))


def examine(call: Call) -> Any:
    """What is wrong with the machine is not for those who see one project of several."""
    if call.token.project:
        raise ScopeMissing(
            "a token of one project may not examine the server", hint="use a token for all projects with scope admin"
        )
    return to_json(call.service.machine.examine_machine())


def list_workers(call: Call) -> dict[str, Any]:
    return {"workers": to_json(call.service.machine.list_workers()), "next": None}


ROUTES = (
    Route(
        "GET",
        "breakers",
        list_breakers,
        "read",
        "List the circuit breakers.",
        answer=answer_type(
            "BreakersAnswer", "The circuit breakers of the store, by name.", breakers=list[Breaker], next=None
        ),
    ),
    Route(
        "POST",
        "breakers/{name}:reset",
        reset_breaker,
        "run",
        "Close a circuit breaker, so that waiting tasks continue.",
        body=ResetBody,
        answer=answer_type(
            "BreakerReset", "How the breaker was before it was closed, or would be.", dry_run=bool, breaker=Breaker
        ),
    ),
    Route(
        "GET",
        "stats",
        show_stats,
        "read",
        "Count how often retries, handlers, triage and routes were tried and worked.",
        query=StatsQuery,
        is_sum=True,
        answer=answer_type(
            "StatsAnswer",
            "How often each rung of the ladder was tried and worked, and how often agents that decide were right.",
            stats=list[RungStats],
            agents=list[AgentStats],
            next=None,
        ),
    ),
    Route(
        "GET",
        "stats/weeks",
        show_trend,
        "read",
        "Count week by week how often retries, handlers, triage and routes were tried and worked.",
        query=TrendQuery,
        is_sum=True,
        answer=RecoveryTrend,
    ),
    Route(
        "GET",
        "usage",
        show_usage,
        "read",
        "Compare what the steps of a run asked for with what they used.",
        query=UsageQuery,
        answer=answer_type(
            "UsageAnswer",
            "What steps asked for, what they used, and what they should ask for.",
            run_id=int,
            usage=list[StepUsage],
            next=None,
        ),
    ),
    Route(
        "GET",
        "usage/spending",
        show_spending,
        "read",
        "What agents have spent in the runs of the last days, by workflow.",
        query=SpendingQuery,
        is_sum=True,
        answer=Spending,
    ),
    Route(
        "GET",
        "usage/workflows/{name}",
        show_workflow_usage,
        "read",
        "Compare what the steps of a workflow asked for with what they used, over its newest runs.",
        query=WorkflowUsageQuery,
        is_sum=True,
        answer=WorkflowUsage,
    ),
    Route(
        "GET",
        "doctor",
        examine,
        "admin",
        "Check the machine of the server and its store: what was found, and what to do. It runs a step of its own.",
        answer=Diagnosis,
        is_slow=True,
    ),
    Route(
        "GET",
        "workers",
        list_workers,
        "read",
        "List the workers, and what each runs now.",
        answer=answer_type(
            "WorkersAnswer", "The workers of the store, and what each runs now.", workers=list[WorkerLine], next=None
        ),
    ),
)
