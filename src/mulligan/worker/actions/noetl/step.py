"""A step from its first template to its envelope."""

from __future__ import annotations

from typing import Any

from mulligan import StepError
from mulligan.worker.actions.noetl import failures
from mulligan.worker.actions.noetl.calling import (
    again,
    beside,
    carried_out,
    final,
    outcome_names,
    tries_before,
    unsatisfied,
)
from mulligan.worker.actions.noetl.context import Context, result_of
from mulligan.worker.actions.noetl.policy import Deed
from mulligan.worker.actions.noetl.routing import AFTER_FAILURE, AFTER_LOOP, AFTER_SUCCESS, Routes
from mulligan.worker.actions.noetl.templates import filled

_NOTHING = {"kind": "noop"}
_ABSENT = object()


def run(
    *,
    tool: Any = None,
    render: Any = _ABSENT,
    result: Any = _ABSENT,
    loop: dict[str, Any] | None = None,
    set: dict[str, Any] | None = None,
    cases: list[dict[str, Any]] | None = None,
    next: dict[str, Any] | None = None,
    failure: dict[str, Any] | None = None,
    **known: Any,
) -> dict[str, Any]:
    """The envelope {result, ctx, next, status} of the step. StepError where it fails."""
    context = Context(**known)
    routes = Routes(context, cases, next)
    if failure is not None:
        return _routed(failure, context, routes)
    if loop is not None:
        result = _gathered(loop, context)
    elif render is not _ABSENT:
        result = filled(render, context.names())
    if result is not _ABSENT:
        now, events = outcome_names(result, None, 1), AFTER_LOOP if loop is not None else AFTER_SUCCESS
        now |= {} if loop is None else {"loop": {"done": True, "length": len(result["results"])}}
    else:
        (result, now), events = _done(_NOTHING if tool is None else tool, context, routes), AFTER_SUCCESS
    context.know(result)
    context.set(set, context.names(**now, event=context.event(events[0], now["output"])))
    return _envelope(result, context, routes.taken(events, now))


def _done(tool: Any, context: Context, routes: Routes) -> tuple[Any, dict[str, Any]]:
    """What the tool gave, and the names that tell of it. A case may want it called again, however it went."""
    tries = tries_before()
    try:
        result, output = carried_out(routes.with_pages(tool), context)
    except StepError as error:
        deed = _retry_after(error, routes, tries)
        if deed is None and routes.decide_retries:
            raise final(error) from None
        raise again(error, deed, tries) if deed else error from None
    given, gathered = routes.gathered(result)
    now = {**gathered, **outcome_names(result, None, tries + 1), "output": output}
    if deed := routes.retry(AFTER_SUCCESS[:1], now):
        raise again(unsatisfied(context), deed, tries)
    return given, now


def _retry_after(error: StepError, routes: Routes, tries: int) -> Deed | None:
    """What the cases say of trying again. Cases that cannot be asked do not stand in the place of the failure."""
    try:
        return routes.retry(AFTER_FAILURE, outcome_names(None, failures.view(error), tries + 1))
    except StepError as unasked:
        raise beside(error, unasked) from None


def _envelope(result: Any, context: Context, following: list[str], status: str = "ok") -> dict[str, Any]:
    return {"result": result, "ctx": context.set_here, "next": following, "status": status}


def _routed(failure: dict[str, Any], context: Context, routes: Routes) -> dict[str, Any]:
    """Where a failure leads. One that nothing takes up fails this step as well, and stays unhandled."""
    error = StepError(
        str(failure.get("code") or "EXCEPTION"),
        str(failure.get("message") or ""),
        retryable=False,
        details=dict(failure.get("details") or {}),
    )
    view = failures.view(error)
    context.know({"status": "error", "error": view})
    try:
        following = routes.taken(AFTER_FAILURE, outcome_names(None, view, 1), is_failure=True)
    except StepError as unasked:
        raise beside(error, unasked) from None
    if not following:
        raise error
    return _envelope({"status": "error", "error": view}, context, following, "error")


def _gathered(loop: dict[str, Any], context: Context) -> dict[str, Any]:
    """What the items of a loop gave, in their order, and how many went well."""
    outputs = loop.get("results") or []
    context.take_over(outputs)
    stats = {"total": loop.get("total", len(outputs)), "success": loop.get("succeeded"), "failed": loop.get("failed")}
    return {"results": [result_of(output) for output in outputs], "stats": stats}
