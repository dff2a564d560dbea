"""Large outputs, for whoever looks at a run: where each of them is."""

from __future__ import annotations

import os
from typing import Any, TypeVar

from mulligan.core.model.artifacts import KEY, holds_reference, is_artifact, parse_reference, replace_references
from mulligan.core.model.formatting import format_size
from mulligan.errors import ArtifactDamaged
from mulligan.ports import Artifacts

Shown = TypeVar("Shown")


def located(artifacts: Artifacts, value: Shown) -> Shown:
    """The value with the path of its file in each reference to an artifact, where it is in a file."""

    def with_path(reference: dict[str, Any]) -> dict[str, Any]:
        try:
            path = artifacts.path(parse_reference(reference))
        except ArtifactDamaged:
            path = ""
        return {KEY: {**reference[KEY], "path": path}} if path else reference

    return replace_references(value, with_path) if holds_reference(value) else value


def in_words(value: Any) -> str:
    """A reference as a person wants to know it: `3.2MiB, in .mulligan/artifacts/…`; "" for any other value."""
    if not is_artifact(value):
        return ""
    told = value[KEY] if isinstance(value[KEY], dict) else {}
    path = told.get("path", "")
    where = _from_here(path) if path else f"the store: {told.get('name', '')}"
    return f"{format_size(told.get('size', 0))}, in {where}"


def _from_here(path: str) -> str:
    """As one would type it: relative where it is below this folder."""
    here = os.getcwd() + os.sep
    return path[len(here) :] if path.startswith(here) else path
