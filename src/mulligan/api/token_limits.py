"""What a token may do less than its scopes say."""

from __future__ import annotations

from mulligan.api.auth import allows
from mulligan.api.routing import Call, RouteScope
from mulligan.errors import ScopeMissing


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
