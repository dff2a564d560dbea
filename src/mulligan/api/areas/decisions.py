"""What waits for a person, and the answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from mulligan.api.access.token_limits import changed_run, refuse_other_workflow
from mulligan.api.http.paging import Count, Limit, decode_cursor, encode_cursor
from mulligan.api.http.routing import Body, Call, Query, Route
from mulligan.api.http.struct_types import answer_type
from mulligan.errors import UnknownRun
from mulligan.service.decisions.decisions import Decision, DecisionsResult, make_decision
from mulligan.service.decisions.inbox import PendingDetails
from mulligan.service.decisions.pending import PendingEntry
from mulligan.service.rendering.json_output import to_json
from mulligan.service.runs.changes.answers import ChangeResult
from mulligan.service.runs.views.run_view import part_type

# How many decisions one request may have.
DECISIONS_MAX = 1000


class PendingQuery(Query, frozen=True):
    """Which page to list."""

    limit: Limit = 100
    cursor: str = ""


def list_pending(call: Call) -> dict[str, Any]:
    asked: PendingQuery = call.query
    page = call.service.decisions.pending_page(after=decode_cursor(asked.cursor, tuple[Count, str]), limit=asked.limit)
    return {"pending": to_json(page.entries), "next": encode_cursor(page.next), "total": page.total}


def get_pending(call: Call) -> PendingDetails:
    return call.service.decisions.details(int(call.path["run_id"]), call.path["step"])


class DecisionBody(Body, frozen=True):
    """A decision about one parked step. Memory and timeout are for its next attempt: 4GiB, 30m."""

    run_id: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    step: str
    verdict: Literal["retry", "fail"]
    reason: str
    memory: int | str | None = None
    timeout: int | float | str | None = None
    # Larger budgets, such as cost=5 or STEP.tokens=50k.
    budgets: tuple[str, ...] = ()
    # The attempt that it is about: refused if another one is parked by now.
    attempt: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] | None = None
    # How sure its author is. A token may need it to be above a limit.
    confidence: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


class DecisionsBody(Body, frozen=True):
    """Decisions, each of which counts by itself."""

    decisions: Annotated[tuple[DecisionBody, ...], msgspec.Meta(min_length=1, max_length=DECISIONS_MAX)]
    dry_run: bool = False


def decide(call: Call) -> DecisionsResult:
    asked: DecisionsBody = call.body
    for one in asked.decisions:
        _refuse_other_workflow(call, one.run_id)
    decided = [make_decision(**msgspec.structs.asdict(one)) for one in asked.decisions]
    return call.service.changes.decide(decided, dry_run=asked.dry_run)


def _refuse_other_workflow(call: Call, run_id: int) -> None:
    if call.token.limits.workflows:
        try:
            refuse_other_workflow(call, call.service.runs.record(run_id).workflow)
        except UnknownRun:
            pass  # the result of the decision says it


class ApprovalBody(Body, frozen=True):
    """The answer, and why."""

    reason: str
    approve: bool = True
    dry_run: bool = False


def approve_step(call: Call) -> ChangeResult:
    asked: ApprovalBody = call.body
    return call.service.changes.approve(
        changed_run(call), call.path["step"], is_approved=asked.approve, reason=asked.reason, dry_run=asked.dry_run
    )


# By `to_json`: what came of a decision, with why it was refused.
_REFUSAL = answer_type("RefusalView", "Why something was refused.", code=str, message=str, hint=str)
_DECIDED = part_type(
    Decision,
    "DecidedView",
    " ".join(name for name in Decision.__struct_fields__ if name != "budgets"),
    by=str,
    is_recorded=bool,
    error=_REFUSAL | None,
    follows=list[str],
    starts=list[str],
)
DECISIONS_ANSWER = answer_type(
    "DecisionsAnswer",
    "What came of each decision, in the order in which they were given.",
    dry_run=bool,
    decisions=list[_DECIDED],  # type: ignore[valid-type]
)
ROUTES = (
    Route(
        "GET",
        "pending",
        list_pending,
        "read",
        "List what waits for a person: parked steps, approvals, pauses.",
        query=PendingQuery,
        answer=answer_type(
            "PendingAnswer",
            "What waits for a person, oldest run first; and how many wait over all pages.",
            pending=list[PendingEntry],
            next=str | None,
            total=int,
        ),
        is_shared=True,
    ),
    Route(
        "GET",
        "pending/{run_id:int}/{step}",
        get_pending,
        "read",
        "A step that waits for a person: the end of its log, earlier decisions about the same error, or its answer.",
        answer=PendingDetails,
        is_shared=True,
    ),
    Route(
        "POST",
        "decisions",
        decide,
        "decide",
        "Decide about parked steps, each with a reason. One decision that is refused does not stop the others.",
        body=DecisionsBody,
        answer=DECISIONS_ANSWER,
        problems=(409,),
    ),
    Route(
        "POST",
        "runs/{run_id:int}/steps/{step}:approve",
        approve_step,
        "decide",
        "Answer an approval that a step waits for.",
        body=ApprovalBody,
        answer=ChangeResult,
        problems=(409,),
    ),
)
