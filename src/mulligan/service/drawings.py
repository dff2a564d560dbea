"""Workflows as pictures. Separate from the other modules, since running a workflow does not need it."""

from __future__ import annotations

from collections.abc import Mapping

from mulligan.core.model.workflow import Workflow
from mulligan.language.drawing import draw_mermaid, draw_svg
from mulligan.language.drawing.picture import Picture, picture
from mulligan.language.drawing.stacks import stacked_picture

__all__ = ["Picture", "draw_mermaid", "draw_svg", "make_picture"]


def make_picture(
    workflow: Workflow, statuses: Mapping[str, str] | None = None, *, is_expanded: bool = False
) -> Picture:
    """The nodes and links of the picture: like steps as one node, unless `is_expanded`."""
    return picture(workflow, statuses) if is_expanded else stacked_picture(workflow, statuses)
