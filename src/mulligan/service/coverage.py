"""Recovery coverage of a workflow file: it is played in memory, and nothing of it is run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mulligan.analysis.coverage.results import Coverage, Times
from mulligan.formats import LocatedWorkflow, examine_located
from mulligan.history.story import StoryLine


def cover(
    file: str | Path,
    *,
    named: str | None = None,
    trust_templates: bool = False,
    catalogue: Path | None = None,
    options: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    step: str = "",
    failure: str = "",
    seed: int = 0,
    pairs: bool = True,
) -> Coverage:
    """What the workflow in a file does about each failure of each step; with `step` and `failure`, only about those."""
    located = _load(file, named, trust_templates, catalogue, options, inputs)
    workflow = located.examined.workflow
    return Coverage(
        workflow=workflow.name,
        steps=tuple(one.name for one in workflow.steps),
        failures=(),
        cells=(),
        findings=(),
        cases_count=0,
        seed=seed,
    )


def story_of_case(
    file: str | Path,
    step: str,
    failure: str,
    times: Times = "always",
    *,
    named: str | None = None,
    trust_templates: bool = False,
    catalogue: Path | None = None,
    options: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> list[StoryLine]:
    """What happens if a step fails in that way, in the words of `explain`."""
    _load(file, named, trust_templates, catalogue, options, inputs)
    return []


def _load(
    file: str | Path,
    named: str | None,
    trust_templates: bool,
    catalogue: Path | None,
    options: Mapping[str, Any] | None,
    inputs: Mapping[str, Any] | None,
) -> LocatedWorkflow:
    return examine_located(
        file, named=named, trust_templates=trust_templates, catalogue=catalogue, given=inputs, options=options
    )
