"""docs/operate/api.md is what the table of routes says."""

from __future__ import annotations

from mulligan.api.reference import PAGE, page


def test_the_page_is_made_from_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "make generated"
