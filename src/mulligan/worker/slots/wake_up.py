"""The next time at which a worker's loop has to do something even if no message arrives."""

from __future__ import annotations

import math


class WakeUp:
    """The earliest of the times that were asked for, as a time of `time.monotonic`."""

    def __init__(self) -> None:
        self.due = math.inf

    def at(self, due: float | None) -> None:
        """Wake the loop at that time, if not earlier."""
        if due is not None and due < self.due:
            self.due = due
