"""Large outputs, for whoever looks at a run: where each of them is."""

from __future__ import annotations

from typing import Any, TypeVar

from mulligan.core.model.artifacts import KEY, holds_reference, parse_reference, replace_references
from mulligan.errors import ArtifactDamaged
from mulligan.ports import Artifacts

Shown = TypeVar("Shown")


def with_artifact_paths(artifacts: Artifacts, value: Shown) -> Shown:
    """The value with the path of its file in each reference to an artifact, where it is in a file."""

    def with_path(reference: dict[str, Any]) -> dict[str, Any]:
        try:
            path = artifacts.path(parse_reference(reference))
        except ArtifactDamaged:
            path = ""
        return {KEY: {**reference[KEY], "path": path}} if path else reference

    return replace_references(value, with_path) if holds_reference(value) else value
