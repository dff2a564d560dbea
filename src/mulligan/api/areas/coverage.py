"""Recovery coverage: what a workflow does about each failure of each step. It is played in memory: nothing is run."""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.analysis.coverage.figures import Figures, count_figures
from mulligan.analysis.coverage.results import Coverage, Times
from mulligan.api.areas.catalogue import Number, WorkflowText
from mulligan.api.http.routing import Call, Query, Routes
from mulligan.errors import InputInvalid
from mulligan.service.authoring.coverage import CaseStory
from mulligan.service.rendering.json_output import to_json

ROUTES = Routes()


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


@ROUTES.add("GET", "workflows/{name}/coverage", "read", answer=CoverageAnswer, is_slow=True)
def show_coverage(call: Call, name: str, query: CoverageQuery) -> Any:
    """What a published workflow does about each failure of each step, or the story of one case. Nothing is run."""
    workflows = call.service.workflows
    if _is_case(query):
        case = (query.step, query.failure, query.times)
        return _story(workflows.published_coverage_story(name, query.version, *case))
    return _whole(workflows.published_coverage(name, query.version))


@ROUTES.add("POST", "workflows:coverage", "read", answer=CoverageAnswer, is_change=False, is_slow=True)
def cover_text(call: Call, body: CoveredText) -> Any:
    """The same of a text. Nothing is stored, nothing is run, no file is read. The work of a server is bounded."""
    file = body.file or "workflow.yaml"
    if _is_case(body):
        case = (body.step, body.failure, body.times)
        return _story(call.service.workflows.text_coverage_story(body.text, *case, file=file, format=body.format))
    return _whole(call.service.workflows.text_coverage(body.text, file=file, format=body.format))


def _is_case(asked: CoverageQuery | CoveredText) -> bool:
    if bool(asked.step) != bool(asked.failure):
        missing = "failure" if asked.step else "step"
        raise InputInvalid("a case is a step and a failure", hint=f"give '{missing}' too", parameter=missing)
    return bool(asked.step)


def _whole(found: Coverage) -> dict[str, Any]:
    return {"figures": to_json(count_figures(found)), "coverage": msgspec.to_builtins(found), "story": None}


def _story(found: CaseStory) -> dict[str, Any]:
    return {"figures": None, "coverage": None, "story": to_json(found)}
