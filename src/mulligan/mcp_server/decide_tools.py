"""Tools that decide: about failed steps that are parked, and about approvals.

They change nothing unless `dry_run` is false. What they may decide, and how often, is up to the guard rails of the
token; the service checks it, so that no other way leads around them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from mulligan.errors import InputInvalid
from mulligan.mcp_server.argument_types import Reason, RunId
from mulligan.mcp_server.tool import Arguments, ToolCall, Tools
from mulligan.service.decisions.decisions import Decision, make_decision
from mulligan.service.rendering.json_output import to_json
from mulligan.service.runs.changes.answers import ChangeResult

TOOLS = Tools()

# How many decisions one call may have.
DECISIONS_MAX = 200
Verdict = Annotated[Literal["retry", "fail"], msgspec.Meta(description="Run the step again, or let it fail for good.")]
Memory = Annotated[
    int | str | None, msgspec.Meta(description="Memory for the next attempt, such as 4GiB; only with retry.")
]
Duration = Annotated[
    int | float | str | None, msgspec.Meta(description="Time limit of the next attempt, such as 30m; only with retry.")
]
Attempt = Annotated[
    Annotated[int, msgspec.Meta(ge=1, lt=2**31)] | None,
    msgspec.Meta(description="The attempt that you looked at: refused if it is another one now."),
]
Confidence = Annotated[
    Annotated[float, msgspec.Meta(ge=0, le=1)] | None,
    msgspec.Meta(description="How sure you are, from 0 to 1. A token may need it to be high."),
]
Trial = Annotated[bool, msgspec.Meta(description="Only say what would follow. Send false to really decide.")]


class Classify(Arguments, frozen=True):
    run_id: RunId
    step: Annotated[str, msgspec.Meta(min_length=1, description="The parked step.")]
    verdict: Verdict
    reason: Reason
    memory: Memory = None
    timeout: Duration = None
    attempt: Attempt = None
    confidence: Confidence = None
    dry_run: Trial = True


@TOOLS.add(
    "decide",
    "Decide about a failed step that is parked: retry it, perhaps with more memory or time, or let it fail. "
    "Read get_failure first, and say how sure you are: what you are not sure of is left to a person. It changes "
    "nothing until you send dry_run false.",
    is_destructive=True,
)
def classify(call: ToolCall, asked: Classify) -> Any:
    fields = msgspec.structs.asdict(asked)
    dry_run = fields.pop("dry_run")
    result = call.service.changes.decide([make_decision(**fields)], dry_run=dry_run)
    (decided,) = result.decisions
    if decided.error is not None:
        raise decided.error
    return {"dry_run": result.dry_run, **to_json(decided)}


class Classification(Arguments, frozen=True):
    """One of several decisions. The second name of an argument is the one that it has in Torc."""

    run_id: RunId | None = None
    step: Annotated[str, msgspec.Meta(description="The parked step.")] = ""
    job_id: Annotated[str, msgspec.Meta(description="The same as `step`.")] = ""
    verdict: Verdict | None = None
    action: Annotated[Literal["retry", "fail"] | None, msgspec.Meta(description="The same as `verdict`.")] = None
    reason: Reason = ""
    memory: Memory = None
    timeout: Duration = None
    runtime: Annotated[int | float | str | None, msgspec.Meta(description="The same as `timeout`.")] = None
    attempt: Attempt = None
    confidence: Confidence = None


class ClassifyMany(Arguments, frozen=True):
    classifications: Annotated[
        tuple[Classification, ...],
        msgspec.Meta(min_length=1, max_length=DECISIONS_MAX, description="The decisions; each counts by itself."),
    ]
    workflow_id: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None,
        msgspec.Meta(description="The run of those that do not name one."),
    ] = None
    dry_run: Trial = True


@TOOLS.add(
    "decide",
    "Decide about many parked steps at once. Each decision counts by itself: one that is refused says why and "
    "does not stop the others. It changes nothing until you send dry_run false. Torc's names count as well.",
    is_destructive=True,
)
def classify_and_resolve_failures(call: ToolCall, asked: ClassifyMany) -> Any:
    decided = [_decision(one, number, asked.workflow_id) for number, one in enumerate(asked.classifications)]
    return call.service.changes.decide(decided, dry_run=asked.dry_run)


def _decision(one: Classification, number: int, run_id: int | None) -> Decision:
    """`InputInvalid` names the classification, counted from 0 as in the arguments."""
    where = f"classifications[{number}]"
    try:
        return make_decision(
            _only(where, "run_id", one.run_id or run_id, "workflow_id", None),
            _only(where, "step", one.step, "job_id", one.job_id),
            _only(where, "verdict", one.verdict, "action", one.action),
            one.reason,
            memory=one.memory,
            timeout=one.timeout if one.timeout is not None else one.runtime,
            attempt=one.attempt,
            confidence=one.confidence,
        )
    except InputInvalid as error:
        if "argument" in error.data:
            raise
        raise InputInvalid(f"{where}: {error.message}", hint=error.hint, argument=where) from None


def _only(where: str, name: str, value: Any, other: str, other_value: Any) -> Any:
    """The value under the one name or the other. `InputInvalid` for none, and for two that differ."""
    found = {one for one in (value, other_value) if one}
    if len(found) != 1:
        message = f"{where} has two: '{name}' and '{other}' differ" if found else f"{where} has no '{name}'"
        raise InputInvalid(message, hint=f"give '{name}'", argument=where)
    return found.pop()


class Approve(Arguments, frozen=True):
    run_id: RunId
    step: Annotated[str, msgspec.Meta(min_length=1, description="The step that waits for an approval.")]
    reason: Reason
    approve: Annotated[bool, msgspec.Meta(description="False refuses what is asked for.")] = True
    dry_run: Trial = True


@TOOLS.add(
    "decide",
    "Answer an approval that a step waits for. It changes nothing until you send dry_run false.",
    is_destructive=True,
)
def approve(call: ToolCall, asked: Approve) -> ChangeResult:
    return call.service.changes.approve(
        asked.run_id, asked.step, is_approved=asked.approve, reason=asked.reason, dry_run=asked.dry_run
    )
