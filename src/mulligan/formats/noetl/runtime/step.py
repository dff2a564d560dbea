"""Run one step: from its first template to its envelope."""

from __future__ import annotations

from typing import Any

from mulligan import StepError
from mulligan.formats.noetl.runtime import failures
from mulligan.formats.noetl.runtime.context import Context, is_envelope, result_of
from mulligan.formats.noetl.runtime.credentials import invalid_input
from mulligan.formats.noetl.runtime.parts import open_parts
from mulligan.formats.noetl.runtime.policy import Decision, must_retry_in_place
from mulligan.formats.noetl.runtime.routing import AFTER_FAILURE, AFTER_LOOP, AFTER_SUCCESS, Routes
from mulligan.formats.noetl.runtime.templates import render_text, render_value
from mulligan.formats.noetl.runtime.tools.pipeline import (
    failed_attempts,
    final_failure,
    outcome_names,
    rejected_result,
    retryable_failure,
    run_tools,
    with_route_problem,
)
from mulligan.formats.noetl.runtime.tools.tools import refuse_code
from mulligan.worker.databases.kept_connections import KEPT

_NOTHING = {"kind": "noop"}
_ABSENT = object()


def run(
    *,
    tool: Any = None,
    render: Any = _ABSENT,
    pinned: dict[str, str] | None = None,
    result: Any = _ABSENT,
    loop: dict[str, Any] | None = None,
    each: dict[str, Any] | None = None,
    set: dict[str, Any] | None = None,
    cases: list[dict[str, Any]] | None = None,
    next: dict[str, Any] | None = None,
    failure: dict[str, Any] | None = None,
    **known: Any,
) -> dict[str, Any]:
    """Run the step; returns the envelope {result, ctx, next, status}. StepError where it fails."""
    context = Context(**known)
    routes = Routes(context, cases, next)
    if failure is not None:
        return _route_failure(failure, context, routes)
    if result is _ABSENT and render is _ABSENT and loop is None:
        tool = routes.with_pages(_NOTHING if tool is None else tool)
    context.parts = open_parts(context.credentials.texts) if _has_parts(tool, routes) else None
    try:
        events = AFTER_SUCCESS if loop is None else AFTER_LOOP
        if loop is not None:
            result = _collect_results(loop, context)
            _set_in_turn(each, loop, context)
        elif render is not _ABSENT:
            _refuse_other_playbook(pinned, context)
            result = render_value(render, context.names())
        if result is not _ABSENT:
            now = outcome_names(result, None, 1)
            now |= {} if loop is None else {"loop": {"done": True, "length": len(result["results"])}}
        else:
            if context.is_first:
                routes.enter()
            result, now = _run_tool(tool, context, routes)
        context.know(result)
        context.set(set, context.names(**now, event=context.event(events[0], now["output"])))
        return _envelope(result, context, routes.follow(events, now, of_items=_next_of_items(loop)))
    except Exception:
        if context.parts is not None:
            context.parts.discard()
        raise


def _has_parts(tool: Any, routes: Routes) -> bool:
    """Whether the step makes several calls: then those that ended are recorded, and a crash does not repeat them."""
    is_repeated = isinstance(tool, dict) and ("pages" in tool or must_retry_in_place(tool))
    return isinstance(tool, list) or is_repeated or routes.write_sinks


def run_without_code(**keys: Any) -> dict[str, Any]:
    """Run a step that has no tool with code. Its process may keep a connection for the next such step."""
    with refuse_code(), KEPT.keep_connections():
        return run(**keys)


def _refuse_other_playbook(pinned: dict[str, str] | None, context: Context) -> None:
    """Refuse to call the pinned playbook where its path is another one now."""
    if pinned is None:
        return
    path = render_text(pinned["path"], context.names()).strip()
    if path != pinned["is"]:
        message = f"the step calls '{path}', but '{pinned['is']}' was pinned when the run started: set it with -i there"
        raise invalid_input(message)


def _run_tool(tool: Any, context: Context, routes: Routes) -> tuple[Any, dict[str, Any]]:
    """The result of the tool, and the names for its outcome. A case may ask for a retry after any outcome."""
    tries = failed_attempts()
    try:
        result, output = run_tools(tool, context)
    except StepError as error:
        decision = _retry_after(error, routes, tries)
        if decision is None and routes.decide_retries:
            raise final_failure(error) from None
        raise retryable_failure(error, decision, tries) if decision else error from None
    given, collected = routes.collected(result)
    now = {**collected, **outcome_names(result, None, tries + 1), "output": output}
    if decision := routes.retry(AFTER_SUCCESS[:1], now):
        raise retryable_failure(rejected_result(context), decision, tries)
    return given, now


def _retry_after(error: StepError, routes: Routes, tries: int) -> Decision | None:
    """The retry that the cases ask for. An error in a case is reported beside the failure, not instead of it."""
    try:
        return routes.retry(AFTER_FAILURE, outcome_names(None, failures.view(error), tries + 1))
    except StepError as problem:
        raise with_route_problem(error, problem) from None


def _envelope(result: Any, context: Context, following: list[str], status: str = "ok") -> dict[str, Any]:
    return {"result": result, "ctx": context.set_here, "next": following, "status": status}


def _route_failure(failure: dict[str, Any], context: Context, routes: Routes) -> dict[str, Any]:
    """Route a failure. If no arc or case takes it up, this step fails as well, and it stays unhandled."""
    error = StepError(
        str(failure.get("code") or "EXCEPTION"),
        str(failure.get("message") or ""),
        retryable=False,
        details=failures.with_cause(dict(failure.get("details") or {}), failure.get("cause")),
    )
    view = failures.view(error)
    context.know({"status": "error", "error": view})
    try:
        following = routes.follow(AFTER_FAILURE, outcome_names(None, view, 1), is_failure=True)
    except StepError as problem:
        raise with_route_problem(error, problem) from None
    if not following:
        raise error
    return _envelope({"status": "error", "error": view}, context, following, "error")


def _collect_results(loop: dict[str, Any], context: Context) -> dict[str, Any]:
    """The results of the items of a loop, in order, and how many succeeded."""
    outputs = loop.get("results") or []
    context.take_over(outputs)
    stats = {"total": loop.get("total", len(outputs)), "success": loop.get("succeeded"), "failed": loop.get("failed")}
    return {"results": [result_of(output) for output in outputs], "stats": stats}


def _next_of_items(loop: dict[str, Any] | None) -> list[str]:
    """The steps that the items of a loop lead to."""
    outputs = (loop or {}).get("results") or []
    return [step for output in outputs if is_envelope(output) for step in output.get("next") or []]


def _set_in_turn(each: dict[str, Any] | None, loop: dict[str, Any], context: Context) -> None:
    """Set the values of `each` once for every item that succeeded, in the order of the items."""
    if each is None:
        return
    outputs = loop.get("results") or []
    for index, (value, output) in enumerate(zip(each["values"], outputs, strict=False)):
        if output is None:
            continue  # it failed
        result = result_of(output)
        place = context.names_of_item({"name": each["name"], "value": value, "index": index, "length": len(outputs)})
        now = {**place, **outcome_names(result, None, 1)}
        names = context.names(**now, event=context.event(AFTER_SUCCESS[0], now["output"]))
        context.set(each["set"], names)
