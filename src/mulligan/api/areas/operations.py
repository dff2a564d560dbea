"""The store as a whole: circuit breakers, statistics, usage, workers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from mulligan.api.areas.run_filters import moment_of
from mulligan.api.http.routing import AnswerBody, Body, Call, Query, Routes
from mulligan.errors import InputInvalid, NotFound, ScopeMissing
from mulligan.service.driving.workers import WorkerLine
from mulligan.service.host.breakers import Breaker
from mulligan.service.host.doctor import Diagnosis
from mulligan.service.runs.statistics.stats import AgentStats, RungStats
from mulligan.service.runs.statistics.trends import RecoveryTrend, Spending, WorkflowUsage
from mulligan.service.runs.statistics.usage import StepUsage

ROUTES = Routes()

RunId = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class BreakersAnswer(AnswerBody, frozen=True):
    """The circuit breakers of the store, by name."""

    breakers: list[Breaker]
    next: None


@ROUTES.add("GET", "breakers", "read")
def list_breakers(call: Call) -> BreakersAnswer:
    """List the circuit breakers."""
    return BreakersAnswer(breakers=call.service.machine.list_breakers(), next=None)


class ResetBody(Body, frozen=True):
    """Why the breaker is closed."""

    reason: str = ""
    dry_run: bool = False


class BreakerReset(AnswerBody, frozen=True):
    """How the breaker was before it was closed, or would be."""

    dry_run: bool
    breaker: Breaker


@ROUTES.add("POST", "breakers/{name}:reset", "run")
def reset_breaker(call: Call, name: str, body: ResetBody) -> BreakerReset:
    """Close a circuit breaker, so that waiting tasks continue."""
    found = call.service.machine.reset_breaker(name, is_dry=body.dry_run)
    return BreakerReset(dry_run=body.dry_run, breaker=found)


class StatsQuery(Query, frozen=True):
    """Of which runs: of one, or of those of a workflow and since a time (2026-11-01T08:00:00Z, or how long ago: 7d)."""

    run: RunId | None = None
    workflow: str = ""
    since: str = ""


class StatsAnswer(AnswerBody, frozen=True):
    """How often each rung of the ladder was tried and worked, and how often agents that decide were right."""

    stats: list[RungStats]
    agents: list[AgentStats]
    next: None


@ROUTES.add("GET", "stats", "read", is_sum=True)
def show_stats(call: Call, query: StatsQuery) -> StatsAnswer:
    """Count how often retries, handlers, triage and routes were tried and worked."""
    if query.run is not None and (query.workflow or query.since):
        hint = "leave out the run, or the others"
        raise InputInvalid("'workflow' and 'since' cannot be combined with 'run'", hint=hint, parameter="run")
    about: dict[str, Any] = {"workflow": query.workflow or None, "since": moment_of(query.since)}
    runs = call.service.runs
    return StatsAnswer(stats=runs.stats(query.run, **about), agents=runs.agent_stats(query.run, **about), next=None)


class TrendQuery(Query, frozen=True):
    """Of the runs of how many weeks, and of which workflow."""

    weeks: Annotated[int, msgspec.Meta(ge=1, le=104)] = 26
    workflow: str = ""


@ROUTES.add("GET", "stats/weeks", "read", is_sum=True)
def show_trend(call: Call, query: TrendQuery) -> RecoveryTrend:
    """Count week by week how often retries, handlers, triage and routes were tried and worked."""
    return call.service.trends.recovery(datetime.now(UTC), weeks=query.weeks, workflow=query.workflow)


class UsageQuery(Query, frozen=True):
    """Of which run."""

    run: RunId


class UsageAnswer(AnswerBody, frozen=True):
    """What steps asked for, what they used, and what they should ask for."""

    run_id: int
    usage: list[StepUsage]
    next: None


@ROUTES.add("GET", "usage", "read")
def show_usage(call: Call, query: UsageQuery) -> UsageAnswer:
    """Compare what the steps of a run asked for with what they used."""
    return UsageAnswer(run_id=query.run, usage=call.service.runs.usage(query.run), next=None)


class SpendingQuery(Query, frozen=True):
    """Of the runs of how many days."""

    days: Annotated[int, msgspec.Meta(ge=1, le=366)] = 30


@ROUTES.add("GET", "usage/spending", "read", is_sum=True)
def show_spending(call: Call, query: SpendingQuery) -> Spending:
    """What agents have spent in the runs of the last days, by workflow."""
    return call.service.trends.spending(datetime.now(UTC), days=query.days)


class WorkflowUsageQuery(Query, frozen=True):
    """Of how many of its newest runs."""

    runs: Annotated[int, msgspec.Meta(ge=1, le=50)] = 10


@ROUTES.add("GET", "usage/workflows/{name}", "read", is_sum=True)
def show_workflow_usage(call: Call, name: str, query: WorkflowUsageQuery) -> WorkflowUsage:
    """Compare what the steps of a workflow asked for with what they used, over its newest runs."""
    found = call.service.trends.usage(name, runs=query.runs)
    if not found.run_ids and not found.left_out:
        raise NotFound(f"no run of '{found.workflow[:100]}' has ended", hint="list the runs: GET /api/v1/runs")
    return found


@ROUTES.add("GET", "doctor", "admin", is_slow=True)
def examine(call: Call) -> Diagnosis:
    """Check the machine of the server and its store: what was found, and what to do. It runs a step of its own."""
    # What is wrong with the machine is not for those who see one project of several.
    if call.token.project:
        raise ScopeMissing(
            "a token of one project may not examine the server", hint="use a token for all projects with scope admin"
        )
    return call.service.machine.examine_machine()


class WorkersAnswer(AnswerBody, frozen=True):
    """The workers of the store, and what each runs now."""

    workers: list[WorkerLine]
    next: None


@ROUTES.add("GET", "workers", "read")
def list_workers(call: Call) -> WorkersAnswer:
    """List the workers, and what each runs now."""
    return WorkersAnswer(workers=call.service.machine.list_workers(), next=None)
