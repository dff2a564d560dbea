"""docs/operate/api.md is what the table of routes says."""

from __future__ import annotations

import re

from mulligan.api.http.decoding import BodyDecoder
from mulligan.api.reference import PAGE, page
from mulligan.api.routes import ROUTES


def test_the_page_is_made_from_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "make generated"


def test_the_objects_inside_a_body_are_shown_with_what_they_need() -> None:
    text = page()

    assert "In `POST decisions`, each of `decisions` is an object. A decision about one parked step." in text
    assert "| `verdict` (needed) | `fail` or `retry` |\n| `reason` (needed) | a text |" in text
    assert '{"decisions": [{"run_id": 1, "step": "…", "verdict": "retry", "reason": "…"}]}' in text


def test_the_example_of_every_nested_body_is_one_that_its_route_takes() -> None:
    sections = re.findall(r"In `(\w+ [^`]+)`, .*?```json\n(.*?)\n```", page(), re.DOTALL)
    routes = {f"{one.method} {one.path}": one for one in ROUTES}

    for name, example in sections:
        BodyDecoder(routes[name].body).decode(example.encode())

    assert len(sections) >= 6
