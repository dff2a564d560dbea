"""What the page about Torc says of our API is in the table of routes."""

from __future__ import annotations

import re
from pathlib import Path

from mulligan.api.routes import ROUTES

PAGE = Path(__file__).parent.parent.parent / "docs" / "other-systems" / "torc.md"
# Other parts of the server have their own tests.
OF_RUNS = re.compile(r"`(GET|POST) ((?:runs|pending|decisions|workers)[^`? ]*)")


def test_every_address_of_runs_on_the_page_exists() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Torc's API")[2].partition("\n## ")[0]
    # The column of our own.
    named = {found for line in section.splitlines() for found in OF_RUNS.findall(line.rpartition(" | ")[2])}
    known = {(route.method, route.path.replace(":int}", "}")) for route in ROUTES}

    assert len(named) > 10
    assert named <= known
