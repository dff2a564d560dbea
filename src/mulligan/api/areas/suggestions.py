"""Rules from history: what the runs of a store propose, and drafts with it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from mulligan.api.areas.run_filters import moment_of
from mulligan.api.http.routing import Body, Call, Query, Routes
from mulligan.service.authoring.suggest import DraftedChanges, Suggestions

ROUTES = Routes()

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


@ROUTES.add("GET", "suggestions", "read", is_slow=True)
def show_suggestions(call: Call, query: SuggestQuery) -> Suggestions:
    """What the newest runs say about the rules and limits of their workflows: proposals with their evidence."""
    return call.service.workflows.suggest(query.workflow, since=moment_of(query.since), step=query.step)


@ROUTES.add("POST", "workflows/{name}:suggest", "propose", problems=(409,))
def draft_suggestions(call: Call, name: str, body: DraftBody) -> DraftedChanges:
    """Write proposals into a draft of a published workflow. A draft of somebody else stays."""
    # Before the runs are read, which takes a while.
    call.service.catalogue.workflow(name)
    found = call.service.workflows.suggest(name, since=moment_of(body.since))
    chosen = call.service.workflows.choose_suggestions(found, body.ids)
    return call.service.workflows.draft_suggestions(name, chosen, dry_run=body.dry_run)
