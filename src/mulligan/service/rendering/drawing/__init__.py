"""A workflow as a picture: Mermaid text for documents, SVG for everything else.

Pure and deterministic: the same workflow gives the same bytes, in time roughly linear in its steps and edges.
`statuses` (step name -> status) colours the steps by their status in a run. Running a workflow never imports this.
"""

from __future__ import annotations

from mulligan.service.rendering.drawing.grouped_steps import choose_picture
from mulligan.service.rendering.drawing.mermaid import draw_mermaid
from mulligan.service.rendering.drawing.picture import Picture
from mulligan.service.rendering.drawing.svg import draw_embedded_svg, draw_page_svg, draw_svg

__all__ = ["Picture", "choose_picture", "draw_embedded_svg", "draw_mermaid", "draw_page_svg", "draw_svg"]
