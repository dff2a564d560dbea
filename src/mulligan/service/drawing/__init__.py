"""A workflow as a picture: Mermaid text for documents, SVG for everything else.

Pure and deterministic: the same workflow gives the same bytes, in time roughly linear in its steps and edges.
`statuses` (step name -> status) colours the steps by their status in a run. Running a workflow never imports this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mulligan.core.model.workflow import Workflow
from mulligan.service.drawing.mermaid import draw_mermaid
from mulligan.service.drawing.stacks import choose_picture
from mulligan.service.drawing.svg import draw_svg

__all__ = ["count_links", "draw_mermaid", "draw_svg", "picture_json"]


def picture_json(workflow: Workflow, statuses: Mapping[str, str] | None = None, *, is_expanded: bool = False) -> Any:
    """The nodes and links of the picture as plain data; similar steps are one node, unless `is_expanded`."""
    return msgspec.to_builtins(choose_picture(workflow, statuses, is_expanded=is_expanded))


def count_links(workflow: Workflow, *, is_expanded: bool = False) -> int:
    """The number of links in the picture."""
    return len(choose_picture(workflow, None, is_expanded=is_expanded).links)
