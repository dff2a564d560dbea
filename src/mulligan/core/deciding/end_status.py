"""How a run ends: the status that `end` returns or leaves as it is, the outputs of the run, and its counts.

`end` may return `{"status": "completed" or "failed", "reason": …}`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec

from mulligan.core.model import events as e
from mulligan.core.model.artifacts import is_artifact
from mulligan.core.model.workflow import END
from mulligan.core.state.scope import RUN_TOO_LONG, DecisionContext
from mulligan.core.state.state import Place, State
from mulligan.core.state.verdict import dropped_outputs, is_degraded, is_handled, open_failures, unhandled, verdict
from mulligan.errors import ExpressionFailed, OutputDropped

END_STATUSES = ("completed", "failed")
# The outputs of `http` and `noetl` actions: their `status` is that of a response or a tool, not of the run.
_RESPONSES = (frozenset(("status", "headers", "body")), frozenset(("result", "ctx", "next", "status")))


def parse_end_output(output: Any) -> dict[str, Any]:
    """The object that `end` returned, also if it is the text of one, since a shell command prints text."""
    if isinstance(output, str) and output.lstrip().startswith("{"):
        # Strict: values that a log cannot hold (a lone surrogate, a huge number) are not accepted.
        with suppress(ValueError, RecursionError):
            output = msgspec.json.decode(output)
    if not isinstance(output, dict) or is_artifact(output) or output.keys() in _RESPONSES:
        return {}
    return output


def status_problem(output: Any) -> str:
    """Why the status that `end` returned is not valid; empty if it is, or if there is none."""
    status = parse_end_output(output).get("status")
    if status is None or (isinstance(status, str) and status in END_STATUSES):
        return ""
    return f'end returned the status {_excerpt(status)}: it may return "completed" or "failed", or no status'


def _excerpt(status: Any) -> str:
    text = msgspec.json.encode(status).decode()
    return text if len(text) <= 100 else f"{text[:100]}…"


# -- after `end` has run ----------------------------------------------------------------------------------------------


def after_end_step(now: DecisionContext) -> Iterator[e.Fact]:
    """End the round. `end` may turn completed into failed, and failed into completed unless steps were undone."""
    state, end = now.state, now.state.places[END]
    status, reason = _final_status(now, end)
    outputs, problem = _outputs(now, end)
    if problem and status == "completed":
        status, reason = "failed", problem
    kinds = {"completed": e.RunCompleted, "failed": e.RunFailed, "cancelled": e.RunCancelled}
    yield kinds[status](
        round=state.run.round,
        degraded=status == "completed" and is_degraded(state),
        outputs=outputs,
        reason=reason,
        **_counts(state),
    )


def _final_status(now: DecisionContext, end: Place) -> tuple[str, str]:
    state = now.state
    status = verdict(state)
    if status == "cancelled":
        return status, state.run.stop.reason if state.run.stop else ""
    if end.status == "failed":
        return "failed", f"end failed: {end.failure.code if end.failure else ''}"
    result = _end_result(now, end)
    wanted, reason = result.get("status"), str(result.get("reason") or "")
    if wanted == "failed" and status == "completed":
        return wanted, reason or "end returned the status failed"
    if wanted == "failed" or (wanted == "completed" and not state.run.has_undone):
        return wanted, reason
    if reason:
        return status, reason
    if state.run.is_time_up:
        return status, RUN_TOO_LONG
    return status, ""


def _end_result(now: DecisionContext, end: Place) -> dict[str, Any]:
    try:
        return parse_end_output(now.fetch(end.output))
    except ExpressionFailed:
        return {}


def _outputs(now: DecisionContext, end: Place) -> tuple[dict[str, Any], str]:
    """The outputs of the workflow, null where one cannot be evaluated; and the first such problem."""
    outputs: dict[str, Any] = {}
    problem = ""
    for name, template in now.state.workflow.outputs.items():
        try:
            outputs[name] = now.render(template, end)
        except ExpressionFailed as error:
            outputs[name] = None
            code = f"{error.failure_code}: " if isinstance(error, OutputDropped) else ""
            problem = problem or f"output '{name}': {code}{error.message}"
    return outputs, problem


def _counts(state: State) -> dict[str, Any]:
    failed = {record.step for record in unhandled(state)}
    handled = {record.step for record in open_failures(state) if record.step != END and is_handled(state, record)}
    steps, places = state.graph.nodes, state.places.values()
    recovered = {p.parent or p.key for p in places if p.recovered_by and p.role in ("step", "item")}
    return {
        "total_steps": len(steps),
        "failed_steps_count": len(failed),
        "handled_steps_count": len(handled - failed),
        "recovered_steps_count": len(recovered & steps.keys()),
        "skipped_steps_count": [step.status for step in state.steps()].count("skipped"),
        "dropped_outputs_count": sum(1 for _ in dropped_outputs(state)),
    }
