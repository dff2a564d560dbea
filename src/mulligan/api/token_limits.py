"""What a token may do less than its scopes say: only some workflows, only so many decisions an hour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from mulligan.api.auth import allows
from mulligan.api.routing import Call, Route, RouteScope
from mulligan.errors import NotFound, ScopeMissing, TooManyRequests
from mulligan.service import owner_of

_HOUR = timedelta(hours=1)


def check_limits(call: Call, route: Route, routes: tuple[Route, ...]) -> None:
    """`ScopeMissing` for a workflow that the token may not touch, `TooManyRequests` for a decision too many."""
    limits = call.token.limits
    if limits.workflows:
        for workflow in _workflows(call, route):
            refuse_other_workflow(call, workflow)
    if limits.decisions_per_hour is not None and route.scope == "decide":
        since = datetime.now(UTC) - _HOUR
        made = call.service.audit.count(owner_of(call.token.id), _decision_names(routes), since)
        if made + _decision_count(call.body) > limits.decisions_per_hour:
            raise TooManyRequests(
                f"this token may make {limits.decisions_per_hour} decisions an hour",
                hint="wait, or let somebody else decide",
                retry_after=int(_HOUR.total_seconds()),
            )


@cache
def _decision_names(routes: tuple[Route, ...]) -> tuple[str, ...]:
    return tuple(one.name for one in routes if one.scope == "decide" and one.changes)


def _decision_count(body: Any) -> int:
    """How many decisions a request has."""
    return max(1, len(getattr(body, "decisions", ())))


def _workflows(call: Call, route: Route) -> set[str]:
    """The workflows that a change is about: of the runs or the schedule that it names, or by name."""
    run_ids = [int(call.path["run_id"])] if "run_id" in call.path else []
    run_ids += [one.run_id for one in getattr(call.body, "decisions", ())]
    found = {call.service.record(run_id).workflow for run_id in run_ids}
    name = call.path.get("name")
    if name is not None and route.path.startswith("schedules/"):
        # Its name says nothing: a schedule may have the name of another workflow.
        name = _workflow_of_schedule(call, name)
    named = (getattr(call.body, "workflow", None), name)
    return found | {one for one in named if isinstance(one, str)}


def _workflow_of_schedule(call: Call, name: str) -> str | None:
    """None if there is no such schedule."""
    try:
        workflow: str = call.service.schedules.show(name).workflow
    except NotFound:
        return None
    return workflow


def refuse_other_workflow(call: Call, workflow: str) -> None:
    """`ScopeMissing` if the token is for other workflows only."""
    limits = call.token.limits.workflows
    if limits and workflow not in limits:
        raise ScopeMissing(
            f"this token may not start or change runs of '{workflow}'",
            hint=f"it is for {', '.join(limits[:10])}; use another token",
            workflow=workflow,
        )


def refuse_without(call: Call, scope: RouteScope, why: str) -> None:
    """`ScopeMissing` if the token lacks a scope that this request needs beyond that of its route."""
    if not allows(call.token, scope):
        raise ScopeMissing(f"this token has no scope '{scope}': {why}", hint="use a token that has it", scope=scope)


def changed_run(call: Call) -> int:
    """The run in the path, if the token may change it."""
    run_id = int(call.path["run_id"])
    refuse_other_workflow(call, call.service.record(run_id).workflow)
    return run_id
