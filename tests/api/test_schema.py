"""Every operation of /openapi.json answers as the document says, on both stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.service import Home

from .schema_examples import problems


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_requests_made_from_the_schema_are_answered_as_it_says(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("schema_url") if store == "postgres" else ""

    wrong = problems(Home(tmp_path / "home", url), examples=1, is_quick=True)

    assert wrong == []
