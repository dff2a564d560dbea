"""What a token may do less than its scopes say: only some workflows. What it may decide is checked by the service."""

from __future__ import annotations

from contextlib import suppress

from mulligan.api.access.auth import allows
from mulligan.api.http.routing import Call, Route, RouteScope
from mulligan.errors import NotFound, ScopeMissing
from mulligan.service.runs.changes.event_receivers import not_for_this_run


def check_limits(call: Call, route: Route) -> None:
    """`ScopeMissing` for a workflow that the token may not touch."""
    limits = call.token.limits
    if limits.workflows:
        for workflow in _workflows(call, route):
            refuse_other_workflow(call, workflow)


def _workflows(call: Call, route: Route) -> set[str]:
    """The workflows that a change is about: of the runs or the schedule that it names, or by name."""
    run_ids = [int(call.path["run_id"])] if "run_id" in call.path else []
    run_ids += [one.run_id for one in getattr(call.body, "decisions", ())]
    found = {call.service.runs.record(run_id).workflow for run_id in run_ids}
    name = call.path.get("name")
    if name is not None and route.path.startswith("webhooks/"):
        return _workflows_of_webhooks(call, name)
    if name is not None and route.path.startswith("schedules/"):
        # Its name says nothing: a schedule may have the name of another workflow.
        name = _workflow_of_schedule(call, name)
    named = (getattr(call.body, "workflow", None), name)
    return found | {one for one in named if isinstance(one, str)}


def _workflows_of_webhooks(call: Call, name: str) -> set[str]:
    """What a webhook starts, and what it shall start: whoever sends to it is not limited as this token is."""
    forms = [call.body] if call.body is not None else []
    with suppress(NotFound):
        forms.append(call.service.webhooks.show(name))
    for one in forms:
        if one.start is None:
            raise ScopeMissing(
                "this token is for some workflows only, and the events of a webhook may reach runs of any",
                hint="use another token",
            )
    return {one.start.workflow for one in forms}


def _workflow_of_schedule(call: Call, name: str) -> str | None:
    """None if there is no such schedule."""
    with suppress(NotFound):
        return call.service.schedules.show(name).workflow
    return None


def refuse_other_workflow(call: Call, workflow: str) -> None:
    """`ScopeMissing` if the token is for other workflows only."""
    limits = call.token.limits.workflows
    if limits and workflow not in limits and not allows(call.token, "read"):
        raise not_for_this_run()
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
    record = call.service.runs.record(run_id)
    # A child run belongs to the workflow of the run at the top.
    root = record if record.root_run_id in (0, run_id) else call.service.runs.record(record.root_run_id)
    refuse_other_workflow(call, root.workflow)
    return run_id
