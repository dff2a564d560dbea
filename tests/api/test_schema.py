"""Every operation of /openapi.json answers as the document says, on both stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.service.home import Home


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_requests_made_from_the_schema_are_answered_as_it_says_on_both_stores(
    tmp_path: Path, store_schema_url: str
) -> None:
    # Here: schemathesis takes long to load, and every process of the tests collects this file.
    from .schema_examples import problems

    homes = [Home(tmp_path / "home"), Home(tmp_path / "other", store_schema_url)]

    wrong = problems(homes, examples=1, is_quick=True)

    assert wrong == []
