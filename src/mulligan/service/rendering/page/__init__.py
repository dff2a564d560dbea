"""The parts of pages, and a report as one self-contained HTML page: no scripts, no fonts, no links to other servers.

The charts are functions from plain data to SVG, so that other faces can use them.
"""

from __future__ import annotations

from mulligan.service.rendering.page.document import render_page

__all__ = ["render_page"]
