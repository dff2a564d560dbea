"""Call the tools of a step by their rules: one tool, whose retries are attempts of the step; or a pipeline."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from mulligan import StepError
from mulligan.formats.noetl.runtime import failures
from mulligan.formats.noetl.runtime.answers import mark_answer
from mulligan.formats.noetl.runtime.context import Context
from mulligan.formats.noetl.runtime.credentials import invalid_input
from mulligan.formats.noetl.runtime.policy import (
    FAIL,
    WAIT_SECONDS_MAX,
    Decision,
    decide,
    must_retry_in_place,
    rules_of,
)
from mulligan.formats.noetl.runtime.tools.paging import Paged, call_all_pages
from mulligan.formats.noetl.runtime.tools.tools import call_tool

# The limit for one pipeline: a rule may jump back without end.
CALLS_MAX = 10_000
_PREVIOUS = frozenset({"previous", "prev", "_previous", "@previous"})


def run_tools(tool: Any, context: Context) -> tuple[Any, dict[str, Any]]:
    """The result of the tool or the pipeline, and its `output` for templates. StepError where it fails."""
    if isinstance(tool, list):
        return Pipeline(tool, context).run()
    if must_retry_in_place(tool):
        return Pipeline([tool], context, f"{context.step}_task").run()
    return _call_once(tool, context)


def failed_attempts() -> int:
    """How many attempts of this visit failed before this one."""
    return int(os.environ.get("MULLIGAN_RETRY", 0))


def retryable_failure(error: StepError, decision: Decision, tries: int) -> StepError:
    """The failure of an attempt that a rule repeats: retryable while attempts are left, with the delay."""
    is_left = tries + 1 < decision.attempts
    details = {**error.details, "retry_after": decision.wait(tries + 1)} if is_left else error.details
    return failures.changed(error, retryable=is_left, details=details)


def final_failure(error: StepError) -> StepError:
    """The failure of an attempt that the rules do not repeat: not retryable."""
    return retryable_failure(error, FAIL, FAIL.attempts)


def with_route_problem(error: StepError, problem: StepError) -> StepError:
    """The failure, with the error that its cases or arcs raised. An error that a case decided on comes alone."""
    if problem.code != "EXPRESSION_FAILED":
        return problem
    message = f"{error.message}; and its route cannot be evaluated: {problem.message}"
    return failures.changed(error, message, retryable=False)


def output_view(result: Any, error: dict[str, Any] | None, attempt: int) -> dict[str, Any]:
    """`output` for rules and arcs."""
    data = mark_answer(result)
    found = {"status": "error" if error else "ok", "data": data, "response": data, "error": error, "ref": None}
    http = {"status": (error or {}).get("http_status")}
    if error is None and isinstance(result, dict) and "headers" in result:
        http = {"status": result.get("status"), "headers": result["headers"]}
    pg, py = {"code": (error or {}).get("pg_code")}, {"exception_type": (error or {}).get("exception_type")}
    return {**found, "http": http, "pg": pg, "py": py, "meta": {"attempt": attempt}, "context": mark_answer(result)}


def outcome_names(result: Any, error: dict[str, Any] | None, attempt: int) -> dict[str, Any]:
    """The names for the outcome of a call. `response` is there after a success only."""
    output = output_view(result, error, attempt)
    # `outcome` is the former name of `output`.
    names = {"output": output, "outcome": output, "_attempt": attempt}
    if output["http"].get("status") is not None:
        names["status_code"] = output["http"]["status"]
    if error is not None:
        return {**names, "error": error}
    found = mark_answer(dict(result) if isinstance(result, Paged) else result)
    response = mark_answer(result.last) if isinstance(result, Paged) else found
    return {**names, "response": response, "result": found, "this": found}


def rejected_result(context: Context) -> StepError:
    """The failure of a call that succeeded and that a rule does not accept."""
    return StepError("VALIDATION_FAILED", f"the rules of '{context.step}' do not accept its result")


def _call(tool: dict[str, Any], context: Context, names: dict[str, Any]) -> tuple[Any, StepError | None]:
    call = context.call(names, context.given)
    try:
        return call_all_pages(tool, call, context) if "pages" in tool else call_tool(tool, call), None
    except StepError as error:
        return None, error


def _decided_call(
    tool: dict[str, Any], context: Context, attempt: int, names_with: Callable[..., dict[str, Any]]
) -> tuple[Any, StepError | None, Decision, dict[str, Any]]:
    """Call a tool, and find and apply the rule that holds. Also returns `output` for what follows."""
    result, error = _call(tool, context, names_with(_attempt=attempt))
    names = names_with(**outcome_names(result, failures.view(error) if error else None, attempt))
    decision = decide(tool, names, error is None)
    context.set(decision.sets, names)
    return result, error, decision, names["output"]


def _call_once(tool: dict[str, Any], context: Context) -> tuple[Any, dict[str, Any]]:
    """Make one call. Its retries are attempts of the step, so that no worker waits for them."""
    tries = failed_attempts()
    result, error, decision, output = _decided_call(tool, context, tries + 1, context.names)
    if decision.do == "retry":
        raise retryable_failure(error or rejected_result(context), decision, tries)
    if decision.do == "fail":
        raise final_failure(error or rejected_result(context)) if rules_of(tool) or error is None else error
    return (result if error is None else {"status": "error", "error": failures.view(error)}), output


class Pipeline:
    """Tools that run one after the other within one attempt. After a crash those that have ended do not run again."""

    def __init__(self, tasks: list[dict[str, Any]], context: Context, name: str = "") -> None:
        self._tasks = tasks
        self._context = context
        self._names = [task.get("name") or name or f"task_{at}" for at, task in enumerate(tasks)]
        self._results: dict[str, Any] = dict(context.results)
        self._previous: Any = context.last
        self._output: dict[str, Any] = output_view(None, None, 1)

    def run(self) -> tuple[Any, dict[str, Any]]:
        at, attempt = 0, 1
        for _ in range(CALLS_MAX):
            if not 0 <= at < len(self._tasks):
                return self._result(), self._output
            result, error, decision, self._output = _decided_call(
                self._tasks[at], self._context, attempt, partial(self._now, self._names[at])
            )
            if decision.do == "retry" and attempt < decision.attempts:
                if self._context.parts is None or not self._context.parts.is_replaying:
                    time.sleep(min(decision.wait(attempt), WAIT_SECONDS_MAX))
                attempt += 1
                continue
            if decision.do in ("retry", "fail"):
                raise error or rejected_result(self._context)
            self._keep(at, result, error)
            if decision.do == "break":
                return self._result("break"), self._output
            at, attempt = self._target(decision.to, at) if decision.do == "jump" else at + 1, 1
        raise StepError("EXCEPTION", f"the pipeline made {CALLS_MAX} calls and did not end", retryable=False)

    def _now(self, task: str, **more: Any) -> dict[str, Any]:
        results = {name: mark_answer(result) for name, result in self._results.items()}
        now = {"_prev": mark_answer(self._previous), "_task": task, "results": results}
        return self._context.names(**results, **now, **more)

    def _keep(self, at: int, result: Any, error: StepError | None) -> None:
        """Keep the result of a task. A failure that a rule ignores does not replace the last success."""
        name = self._names[at]
        if error is None:
            self._previous = self._results[name] = result
        else:
            self._results[name] = {"status": "error", "error": failures.view(error)}

    def _target(self, to: str, at: int) -> int:
        if to in _PREVIOUS and at > 0:
            return at - 1
        if to not in self._names:
            raise invalid_input(f"a rule jumps to '{to}', which is not a task of the pipeline")
        return self._names.index(to)

    def _result(self, status: str = "") -> Any:
        last = self._previous if isinstance(self._previous, dict) else {"data": self._previous}
        ended = {"status": status} if status else {}
        return {**last, "results": self._results, **ended}
