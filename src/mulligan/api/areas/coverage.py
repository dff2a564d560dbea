"""Recovery coverage: what a workflow does about each failure of each step. It is played in memory: nothing is run."""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.analysis.coverage.explore import CaseStory
from mulligan.analysis.coverage.figures import Figures, count_figures
from mulligan.analysis.coverage.results import Coverage, Times
from mulligan.api.areas.catalogue import Number, WorkflowText
from mulligan.api.http.routing import Call, Query, Route
from mulligan.errors import InputInvalid
from mulligan.service.rendering.json_output import to_json


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


def show_coverage(call: Call) -> Any:
    name, asked = call.path["name"], call.query
    if _is_case(asked):
        found = call.service.workflows.published_coverage_story(
            name, asked.version, asked.step, asked.failure, asked.times
        )
        return _story(found)
    return _whole(call.service.workflows.published_coverage(name, asked.version))


def cover_text(call: Call) -> Any:
    body: CoveredText = call.body
    file = body.file or "workflow.yaml"
    if _is_case(body):
        found = call.service.workflows.text_coverage_story(
            body.text, body.step, body.failure, body.times, file=file, format=body.format
        )
        return _story(found)
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


ROUTES = (
    Route(
        "GET",
        "workflows/{name}/coverage",
        show_coverage,
        "read",
        "What a published workflow does about each failure of each step, or the story of one case. Nothing is run.",
        query=CoverageQuery,
        answer=CoverageAnswer,
        is_slow=True,
    ),
    Route(
        "POST",
        "workflows:coverage",
        cover_text,
        "read",
        "The same of a text. Nothing is stored, nothing is run, no file is read. The work of a server is bounded.",
        body=CoveredText,
        answer=CoverageAnswer,
        is_change=False,
        is_slow=True,
    ),
)
