"""Rules from history: what the runs of a store propose, and drafts with it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from mulligan.api.http.routing import Body, Call, Query, Route
from mulligan.service.authoring.suggest import DraftedChanges, Suggestions, choose
from mulligan.service.authoring.values import parse_time
from mulligan.service.rendering.json_output import to_json

ProposalId = Annotated[str, msgspec.Meta(max_length=20)]


class SuggestQuery(Query, frozen=True):
    """Of which workflow (all by default), runs since when (2026-11-01T08:00:00Z, or how long ago: 7d), which step."""

    workflow: str = ""
    since: str = ""
    step: str = ""


class DraftBody(Body, frozen=True):
    """Which proposals are written into the draft, all by default; and the runs that they come from."""

    ids: Annotated[list[ProposalId], msgspec.Meta(max_length=100)] = msgspec.field(default_factory=list)
    since: str = ""
    dry_run: bool = False


def show_suggestions(call: Call) -> Any:
    asked: SuggestQuery = call.query
    return to_json(call.service.workflows.suggest(asked.workflow, since=moment_of(asked.since), step=asked.step))


def draft_suggestions(call: Call) -> Any:
    asked: DraftBody = call.body
    name = call.path["name"]
    # Before the runs are read, which takes a while.
    call.service.catalogue.workflow(name)
    found = call.service.workflows.suggest(name, since=moment_of(asked.since))
    chosen = choose(found, asked.ids)
    return to_json(call.service.workflows.draft_suggestions(name, chosen, dry_run=asked.dry_run))


def moment_of(since: str) -> datetime | None:
    return parse_time(since, datetime.now(UTC)) if since else None


ROUTES = (
    Route(
        "GET",
        "suggestions",
        show_suggestions,
        "read",
        "What the newest runs say about the rules and limits of their workflows: proposals with their evidence.",
        query=SuggestQuery,
        answer=Suggestions,
        is_slow=True,
    ),
    Route(
        "POST",
        "workflows/{name}:suggest",
        draft_suggestions,
        "propose",
        "Write proposals into a draft of a published workflow. A draft of somebody else stays.",
        body=DraftBody,
        answer=DraftedChanges,
        problems=(409,),
    ),
)
