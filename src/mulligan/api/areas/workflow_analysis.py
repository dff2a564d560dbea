"""What a workflow does about failures, and what runs say of it: coverage, what-if, rules from history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec

from mulligan.analysis.coverage.explore import CaseStory
from mulligan.analysis.coverage.figures import Figures, count_figures
from mulligan.analysis.coverage.results import Coverage, Times
from mulligan.analysis.whatif.results import WhatIf
from mulligan.api.areas.catalogue import Number, WorkflowText
from mulligan.api.areas.operations import RunId
from mulligan.api.areas.run_filters import moment_of
from mulligan.api.http.routing import Body, Call, Query, Routes
from mulligan.errors import InputInvalid
from mulligan.service.authoring.served_coverage import PlayedText
from mulligan.service.authoring.suggest import DraftedChanges, Suggestions, choose
from mulligan.service.authoring.whatif import WhatIfSelection

ROUTES = Routes()

# What one request of a what-if may look at.
RUNS_MAX, SECONDS_MAX = 2_000, 20.0
ProposalId = Annotated[str, msgspec.Meta(max_length=20)]


# -- coverage --------------------------------------------------------------------------------------------------------


class CoverageQuery(Query, frozen=True):
    """Which version, the newest by default. With `step` and `failure` the answer has what happens in that case."""

    version: Number | None = None
    step: str = ""
    failure: str = ""
    # How often it happens in that case.
    times: Times = "always"


class CoveredText(WorkflowText, frozen=True):
    """A text to play. With `step` and `failure` the answer has what happens in that case."""

    step: str = ""
    failure: str = ""
    times: Times = "always"


class CoverageAnswer(msgspec.Struct, frozen=True):
    """Either `coverage` with its `figures`, or the `story` of one case. Fields with default values are left out."""

    figures: Figures | None = None
    coverage: Coverage | None = None
    story: CaseStory | None = None


@ROUTES.add("GET", "workflows/{name}/coverage", "read", is_slow=True)
def show_coverage(call: Call, name: str, query: CoverageQuery) -> CoverageAnswer:
    """What a published workflow does about each failure of each step, or the story of one case. Nothing is run."""
    return _answer(query, lambda: call.service.workflows.play_published(name, query.version))


@ROUTES.add("POST", "workflows:coverage", "read", is_change=False, is_slow=True)
def cover_text(call: Call, body: CoveredText) -> CoverageAnswer:
    """The same of a text. Nothing is stored, nothing is run, no file is read. The work of a server is bounded."""
    file = body.file or "workflow.yaml"
    return _answer(body, lambda: call.service.workflows.play_text(body.text, file=file, format=body.format))


def _answer(asked: CoverageQuery | CoveredText, play: Callable[[], PlayedText]) -> CoverageAnswer:
    if bool(asked.step) != bool(asked.failure):
        missing = "failure" if asked.step else "step"
        raise InputInvalid("a case is a step and a failure", hint=f"give '{missing}' too", parameter=missing)
    if asked.step:
        return CoverageAnswer(story=play().story_of_case(asked.step, asked.failure, asked.times))
    found = play().cover()
    return CoverageAnswer(count_figures(found), found)


# -- recorded runs, as a changed workflow would have made them -------------------------------------------------------


class WhatIfBody(WorkflowText, frozen=True):
    """The changed text, and the runs to try it on.

    `name`: whose runs, by default those of the name in the text. `since`: a time, or how long ago (30d). `step`: only
    runs in which an attempt of it failed. Another `seed` draws other estimates.
    """

    name: str = ""
    since: str = ""
    step: str = ""
    runs: Annotated[tuple[RunId, ...], msgspec.Meta(max_length=100)] = ()
    seed: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] = 0


@ROUTES.add("POST", "workflows:whatif", "read", is_change=False, is_slow=True)
def try_text(call: Call, body: WhatIfBody) -> WhatIf:
    """Try a changed workflow on the runs that are recorded: what would be otherwise. Nothing is stored or run."""
    selection = WhatIfSelection(
        workflow=body.name,
        since=moment_of(body.since),
        run_ids=body.runs,
        step=body.step,
        seed=body.seed,
        runs_max=RUNS_MAX,
        seconds_max=SECONDS_MAX,
    )
    return call.service.workflows.whatif_of_text(body.text, selection, file=body.file, format=body.format)


# -- rules from history ----------------------------------------------------------------------------------------------


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
    chosen = choose(found, body.ids)
    return call.service.workflows.draft_suggestions(name, chosen, dry_run=body.dry_run)
