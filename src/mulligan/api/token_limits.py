"""What a token may do less than its scopes say: only some workflows, only so many decisions an hour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from mulligan.api.routing import Call, Route
from mulligan.errors import ScopeMissing, TooManyRequests

_HOUR = timedelta(hours=1)


def check_limits(call: Call, route: Route, routes: tuple[Route, ...]) -> None:
    """`ScopeMissing` for a workflow that the token may not touch, `TooManyRequests` for a decision too many."""
    limits = call.token.limits
    if not route.changes:
        return
    if limits.workflows:
        for workflow in _workflows(call):
            if workflow not in limits.workflows:
                raise ScopeMissing(
                    f"this token is limited to other workflows than '{workflow}'",
                    hint=f"it may change runs of: {', '.join(limits.workflows)}",
                )
    if limits.decisions_per_hour is not None and route.scope == "decide":
        since = datetime.now(UTC) - _HOUR
        made = call.service.audit.count(call.token.id, decision_names(routes), since)
        if made + decision_count(call.body) > limits.decisions_per_hour:
            raise TooManyRequests(
                f"this token may make {limits.decisions_per_hour} decisions an hour",
                hint="wait, or let somebody else decide",
                retry_after=int(_HOUR.total_seconds()),
            )


@cache
def decision_names(routes: tuple[Route, ...]) -> tuple[str, ...]:
    return tuple(one.name for one in routes if one.scope == "decide" and one.changes)


def decision_count(body: Any) -> int:
    """How many decisions a request has."""
    return max(1, len(getattr(body, "decisions", ())))


def _workflows(call: Call) -> set[str]:
    """The workflows that a change is about: of the runs that it names, or by name."""
    run_ids = [int(call.path["run_id"])] if "run_id" in call.path else []
    run_ids += [one.run_id for one in getattr(call.body, "decisions", ())]
    found = {call.service.record(run_id).workflow for run_id in run_ids}
    named = (getattr(call.body, "workflow", None), call.path.get("name"))
    return found | {one for one in named if isinstance(one, str)}
