"""What waits for a person, and the answers."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Literal

import msgspec

from mulligan.api.access.token_limits import changed_run, refuse_other_workflow
from mulligan.api.http.paging import Count, Limit, decode_cursor, encode_cursor
from mulligan.api.http.routing import AnswerBody, Body, Call, Query, Routes
from mulligan.errors import UnknownRun
from mulligan.service.decisions.decisions import Decision, DecisionsResult, make_decision
from mulligan.service.decisions.inbox import PendingDetails
from mulligan.service.decisions.pending import PendingEntry
from mulligan.service.runs.changes.answers import ChangeResult
from mulligan.service.runs.views.run_view import part_type

ROUTES = Routes()

# How many decisions one request may have.
DECISIONS_MAX = 1000


class RefusalView(AnswerBody, frozen=True):
    """Why something was refused."""

    code: str
    message: str
    hint: str


# By `to_json`: what came of a decision, with why it was refused.
_DECIDED = part_type(
    Decision,
    "DecidedView",
    " ".join(name for name in Decision.__struct_fields__ if name != "budgets"),
    by=str,
    is_recorded=bool,
    error=RefusalView | None,
    follows=list[str],
    starts=list[str],
)


class DecisionsAnswer(AnswerBody, frozen=True):
    """What came of each decision, in the order in which they were given."""

    dry_run: bool
    decisions: list[_DECIDED]  # type: ignore[valid-type]


class PendingQuery(Query, frozen=True):
    """Which page to list."""

    limit: Limit = 100
    cursor: str = ""


class PendingAnswer(AnswerBody, frozen=True):
    """What waits for a person, oldest run first; and how many wait over all pages."""

    pending: list[PendingEntry]
    next: str | None
    total: int


@ROUTES.add("GET", "pending", "read", is_shared=True)
def list_pending(call: Call, query: PendingQuery) -> PendingAnswer:
    """List what waits for a person: parked steps, approvals, pauses."""
    page = call.service.decisions.pending_page(after=decode_cursor(query.cursor, tuple[Count, str]), limit=query.limit)
    return PendingAnswer(pending=page.entries, next=encode_cursor(page.next), total=page.total)


@ROUTES.add("GET", "pending/{run_id:int}/{step}", "read", is_shared=True)
def get_pending(call: Call, run_id: int, step: str) -> PendingDetails:
    """A step that waits for a person: the end of its log, earlier decisions about the same error, or its answer."""
    return call.service.decisions.details(run_id, step)


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


@ROUTES.add("POST", "decisions", "decide", answer=DecisionsAnswer, problems=(409,))
def decide(call: Call, body: DecisionsBody) -> DecisionsResult:
    """Decide about parked steps, each with a reason. One decision that is refused does not stop the others."""
    for one in body.decisions if call.token.limits.workflows else ():
        # That there is no such run, the result of the decision says.
        with suppress(UnknownRun):
            refuse_other_workflow(call, call.service.runs.record(one.run_id).workflow)
    decided = [make_decision(**msgspec.structs.asdict(one)) for one in body.decisions]
    return call.service.changes.decide(decided, dry_run=body.dry_run)


class ApprovalBody(Body, frozen=True):
    """The answer, and why."""

    reason: str
    approve: bool = True
    dry_run: bool = False


@ROUTES.add("POST", "runs/{run_id:int}/steps/{step}:approve", "decide", problems=(409,))
def approve_step(call: Call, step: str, body: ApprovalBody) -> ChangeResult:
    """Answer an approval that a step waits for."""
    return call.service.changes.approve(
        changed_run(call), step, is_approved=body.approve, reason=body.reason, dry_run=body.dry_run
    )
