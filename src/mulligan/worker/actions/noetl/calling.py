"""Tools called by their rules: one, whose retries are attempts of the step; or several in place, one by one."""

from __future__ import annotations

import os
import time
from typing import Any

from mulligan import StepError
from mulligan.worker.actions.noetl import failures
from mulligan.worker.actions.noetl.answers import answer
from mulligan.worker.actions.noetl.call import Call
from mulligan.worker.actions.noetl.context import Context
from mulligan.worker.actions.noetl.credentials import refused
from mulligan.worker.actions.noetl.paging import Paged, all_pages
from mulligan.worker.actions.noetl.policy import FAIL, WAIT_SECONDS_MAX, Deed, is_in_place, judged, rules_of
from mulligan.worker.actions.noetl.tools import call_tool

# Of one pipeline: one that jumps in a circle ends.
CALLS_MAX = 10_000
_PREVIOUS = frozenset({"previous", "prev", "_previous", "@previous"})


def carried_out(tool: Any, context: Context) -> tuple[Any, dict[str, Any]]:
    """What the tool or the pipeline gives, and its view as `output`. StepError where it fails."""
    if isinstance(tool, list):
        return Pipeline(tool, context).run()
    if is_in_place(tool):
        return Pipeline([tool], context, f"{context.step}_task").run()
    return _called_once(tool, context)


def tries_before() -> int:
    """How many attempts of this visit have failed before this one."""
    return int(os.environ.get("MULLIGAN_RETRY", 0))


def again(error: StepError, deed: Deed, tries: int) -> StepError:
    """The failure of an attempt that a rule wants to repeat: so it is, by the step's own rule, or no more."""
    is_left = tries + 1 < deed.attempts
    details = {**error.details, "retry_after": deed.wait(tries + 1)} if is_left else error.details
    found = StepError(error.code, error.message, severity=error.severity, retryable=is_left, details=details)
    return found.with_traceback(error.__traceback__)


def final(error: StepError) -> StepError:
    """The failure of an attempt that its rules do not repeat, so that nobody does."""
    return again(error, FAIL, FAIL.attempts)


def beside(error: StepError, unasked: StepError) -> StepError:
    """The failure, and that its cases and arcs cannot be asked about it. What they decide themselves is theirs."""
    if unasked.code != "EXPRESSION_FAILED":
        return unasked
    message = f"{error.message}; and where that leads cannot be told: {unasked.message}"
    found = StepError(error.code, message, severity=error.severity, retryable=False, details=error.details)
    return found.with_traceback(error.__traceback__)


def output_view(result: Any, error: dict[str, Any] | None, attempt: int) -> dict[str, Any]:
    """`output` as rules and arcs read it."""
    found = {"status": "error" if error else "ok", "data": answer(result), "error": error, "ref": None}
    http = {"status": (error or {}).get("http_status")}
    if error is None and isinstance(result, dict) and "headers" in result:
        http = {"status": result.get("status"), "headers": result["headers"]}
    pg, py = {"code": (error or {}).get("pg_code")}, {"exception_type": (error or {}).get("exception_type")}
    return {**found, "http": http, "pg": pg, "py": py, "meta": {"attempt": attempt}, "context": answer(result)}


def outcome_names(result: Any, error: dict[str, Any] | None, attempt: int) -> dict[str, Any]:
    """The names that tell how a call went. There is a `response` where there is something to respond to."""
    output = output_view(result, error, attempt)
    # `outcome` is what it was called before it was called `output`.
    told = {"output": output, "outcome": output, "_attempt": attempt}
    if error is not None:
        return {**told, "error": error}
    found = answer(dict(result) if isinstance(result, Paged) else result)
    response = answer(result.last) if isinstance(result, Paged) else found
    return {**told, "response": response, "result": found, "this": found}


def unsatisfied(context: Context) -> StepError:
    """The failure of a call that went well and that a rule does not accept."""
    return StepError("VALIDATION_FAILED", f"what '{context.step}' gave is not what its rules wait for")


def _call(tool: dict[str, Any], context: Context, names: dict[str, Any]) -> tuple[Any, StepError | None]:
    call = Call(
        step=context.step,
        names=names,
        credentials=context.credentials,
        given=context.given,
        trusts_templates=context.trusts_templates,
    )
    try:
        return all_pages(tool, call, context) if "pages" in tool else call_tool(tool, call), None
    except StepError as error:
        return None, error


def _called_once(tool: dict[str, Any], context: Context) -> tuple[Any, dict[str, Any]]:
    """One call. What its rule wants to repeat is left to the step's own rules, which wait without a worker."""
    tries = tries_before()
    result, error = _call(tool, context, context.names(_attempt=tries + 1))
    view = failures.view(error) if error else None
    now = outcome_names(result, view, tries + 1)
    names = context.names(**now)
    deed = judged(tool, names, error is None)
    context.set(deed.sets, names)
    if deed.do == "retry":
        raise again(error or unsatisfied(context), deed, tries)
    if deed.do == "fail":
        raise final(error or unsatisfied(context)) if rules_of(tool) or error is None else error
    return (result if error is None else {"status": "error", "error": view}), now["output"]


class Pipeline:
    """Tools that run one after the other within one attempt. Where it dies, it begins anew."""

    def __init__(self, tasks: list[dict[str, Any]], context: Context, name: str = "") -> None:
        self._tasks = tasks
        self._context = context
        self._names = [task.get("name") or name or f"task_{at}" for at, task in enumerate(tasks)]
        self._results: dict[str, Any] = {}
        self._previous: Any = None
        self._output: dict[str, Any] = output_view(None, None, 1)

    def run(self) -> tuple[Any, dict[str, Any]]:
        at, attempt = 0, 1
        for _ in range(CALLS_MAX):
            if not 0 <= at < len(self._tasks):
                return self._result(), self._output
            result, error, deed = self._step(at, attempt)
            if deed.do == "retry" and attempt < deed.attempts:
                time.sleep(min(deed.wait(attempt), WAIT_SECONDS_MAX))
                attempt += 1
                continue
            if deed.do in ("retry", "fail"):
                raise error or unsatisfied(self._context)
            self._keep(at, result, error)
            if deed.do == "break":
                return self._result("break"), self._output
            at, attempt = self._target(deed.to, at) if deed.do == "jump" else at + 1, 1
        raise StepError("EXCEPTION", f"the pipeline has made {CALLS_MAX} calls, and has no end", retryable=False)

    def _step(self, at: int, attempt: int) -> tuple[Any, StepError | None, Deed]:
        task, name = self._tasks[at], self._names[at]
        result, error = _call(task, self._context, self._now(name, _attempt=attempt))
        view = failures.view(error) if error else None
        names = self._now(name, **outcome_names(result, view, attempt))
        deed = judged(task, names, error is None)
        self._context.set(deed.sets, names)
        self._output = names["output"]
        return result, error, deed

    def _now(self, task: str, **more: Any) -> dict[str, Any]:
        results = {name: answer(result) for name, result in self._results.items()}
        now = {"_prev": answer(self._previous), "_task": task, "results": results}
        return self._context.names(**results, **now, **more)

    def _keep(self, at: int, result: Any, error: StepError | None) -> None:
        """What failed and is passed over leaves the last success where it was."""
        name = self._names[at]
        if error is None:
            self._previous = self._results[name] = result
        else:
            self._results[name] = {"status": "error", "error": failures.view(error)}

    def _target(self, to: str, at: int) -> int:
        if to in _PREVIOUS and at > 0:
            return at - 1
        if to not in self._names:
            raise refused(f"a rule jumps to '{to}', and the pipeline has no such task")
        return self._names.index(to)

    def _result(self, status: str = "") -> Any:
        last = self._previous if isinstance(self._previous, dict) else {"data": self._previous}
        ended = {"status": status} if status else {}
        return {**last, "results": self._results, **ended}
