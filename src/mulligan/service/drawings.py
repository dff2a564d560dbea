"""Workflows as pictures, for the faces. Apart from `definitions`: whoever only runs a workflow need not load this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mulligan.core.model.workflow import Workflow
from mulligan.language.drawing import draw_mermaid, draw_svg
from mulligan.language.drawing.picture import Picture, picture
from mulligan.language.drawing.stacks import stacked_picture

__all__ = ["draw_mermaid", "draw_svg", "drawn_links", "picture_json"]

Statuses = Mapping[str, str] | None


def picture_json(workflow: Workflow, statuses: Statuses = None, *, is_expanded: bool = False) -> Any:
    """The nodes and links of the picture as plain data: steps alike as one node, unless `is_expanded`."""
    return msgspec.to_builtins(_picture(workflow, statuses, is_expanded))


def drawn_links(workflow: Workflow, *, is_expanded: bool = False) -> int:
    """How many links the picture has."""
    return len(_picture(workflow, None, is_expanded).links)


def _picture(workflow: Workflow, statuses: Statuses, is_expanded: bool) -> Picture:
    return picture(workflow, statuses) if is_expanded else stacked_picture(workflow, statuses)
