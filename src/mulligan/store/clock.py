"""The machine's own clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    # As it is: the loop asks several times a round.
    monotonic = staticmethod(time.monotonic)
