"""A report as one HTML page that needs nothing but itself: no script, no font, no address of anything else.

The charts are functions from plain data to SVG, for whatever face wants them.
"""

from __future__ import annotations

from mulligan.service.page.document import page

__all__ = ["page"]
