"""What the tests of Prodigy's files share: the runner, and an agent that is a script."""

from __future__ import annotations

from tests.live.conftest import _no_home_of_ones_own, live_file

__all__ = ["_no_home_of_ones_own", "live_file"]
