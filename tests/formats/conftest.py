"""What the tests of other systems' files share with the live ones: the runner."""

from __future__ import annotations

from ..live.conftest import _no_home_of_ones_own, live, live_file, live_server

__all__ = ["_no_home_of_ones_own", "live", "live_file", "live_server"]
