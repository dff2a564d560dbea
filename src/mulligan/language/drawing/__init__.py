"""A workflow as a picture: Mermaid text for documents, SVG for everything else.

Pure and deterministic: the same workflow gives the same bytes, in time about linear in its steps and edges.
`statuses` (step name -> status) colours the steps as a run left them.
"""

from __future__ import annotations

from mulligan.language.drawing.mermaid import draw_mermaid
from mulligan.language.drawing.svg import draw_svg

__all__ = ["draw_mermaid", "draw_svg"]
