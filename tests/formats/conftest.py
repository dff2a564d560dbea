"""What the tests of other systems' files share: the runner of the live ones, and workers that start fast."""

from __future__ import annotations

import pytest

from ..live.conftest import _no_home_of_ones_own, live, live_file, live_server

__all__ = ["_no_home_of_ones_own", "live", "live_file", "live_server"]


@pytest.fixture(autouse=True)
def _forked(forked_children: None) -> None:
    """None of these tests is about the processes that run a step."""
