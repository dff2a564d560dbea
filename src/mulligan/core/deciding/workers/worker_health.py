"""When a worker whose machine fails its tasks stops taking more, and when it tries again. Pure: time is a value."""

from __future__ import annotations

import msgspec

# After so many attempts in a row that the machine has failed, the worker says that it is in trouble.
TROUBLE_AFTER = 2
# How long it takes no task after such an attempt: twice as long each time that its next try fails too.
FIRST_SECONDS, SECONDS_MAX = 1.0, 300.0


class WorkerHealth(msgspec.Struct, frozen=True):
    """What the last attempts of a worker say about its machine. `cause` is "" while they say nothing bad."""

    cause: str = ""
    # Attempts in a row that the machine has failed.
    failed: int = 0
    # How often in a row it has paused, and until when it does.
    pauses: int = 0
    until: float = 0.0

    @property
    def trouble(self) -> str:
        """What to say about it; "" if it is not in trouble."""
        return self.cause if self.failed >= TROUBLE_AFTER else ""

    def after_attempt(self, cause: str, now: float) -> WorkerHealth:
        """After an attempt that the machine has failed for that cause; without a cause it has not.

        What was started before the pause says nothing about the next try.
        """
        if not cause:
            return HEALTHY
        failed = self.failed + 1
        if self.is_paused(now):
            return msgspec.structs.replace(self, cause=cause, failed=failed)
        return self.after_check(cause, now, failed)

    def after_check(self, cause: str, now: float, failed: int | None = None) -> WorkerHealth:
        """After a look at the machine that found the cause: pause again, for longer."""
        seconds = min(SECONDS_MAX, FIRST_SECONDS * 2.0 ** min(self.pauses, 20))
        return WorkerHealth(cause, self.failed if failed is None else failed, self.pauses + 1, now + seconds)

    def is_paused(self, now: float) -> bool:
        return bool(self.cause) and now < self.until

    def tasks_max(self, now: float, running: int) -> int | None:
        """How many more tasks it may take: none while it pauses, then one to try; None for as many as it likes."""
        if not self.cause:
            return None
        return 0 if self.is_paused(now) or running else 1


HEALTHY = WorkerHealth()
