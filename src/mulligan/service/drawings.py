"""Workflows as pictures, for the faces. Apart from `definitions`: whoever only runs a workflow need not load this."""

from __future__ import annotations

from typing import Any

import msgspec

from ..core.workflow import Workflow
from ..language.drawing import draw_mermaid, draw_svg
from ..language.drawing.picture import picture

__all__ = ["draw_mermaid", "draw_svg", "drawn_links", "picture_json"]


def picture_json(workflow: Workflow) -> Any:
    """The nodes and links of the picture as plain data."""
    return msgspec.to_builtins(picture(workflow))


def drawn_links(workflow: Workflow) -> int:
    """How many links the picture has."""
    return len(picture(workflow).links)
