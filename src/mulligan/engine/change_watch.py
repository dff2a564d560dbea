"""When to look into the store for what other processes have written."""

from __future__ import annotations

from mulligan.ports import ChangeFeed, Clock

# How often the store is asked for changes. One that notifies us wakes the loop anyway.
POLL_SECONDS = 0.02
# How often while other processes write, and for how long after they did: each of our turns answers one of theirs.
BUSY_POLL_SECONDS, BUSY_SECONDS = 0.003, 0.25
# A shared store is looked into at least this often: nothing notifies us of a clock that was set, or of the runs of a
# dead engine. Less often if it wakes us for all that others write: a look is a dozen statements.
IDLE_SECONDS, NOTIFIED_IDLE_SECONDS = 1.0, 10.0


class ChangeWatch:
    """Combines what the engine knows itself, the store's change feed, and a minimum frequency."""

    def __init__(self, store: ChangeFeed, clock: Clock, *, is_shared: bool) -> None:
        self._store = store
        self._clock = clock
        self._is_shared = is_shared
        # Whether the store wakes us for whatever other processes write.
        self.is_notified = False
        # The engine knows that there is something for it.
        self.is_requested = True
        self._polled_at = self._asked_at = 0.0
        self._changed_at = float("-inf")
        # How often the store was polled.
        self.polls = 0

    def request(self) -> None:
        """Let the next round of the loop poll the store."""
        self.is_requested = True

    def is_due(self) -> bool:
        if self.is_requested:
            return True
        # A round of the loop may take less time than the question.
        now = self._clock.monotonic()
        # Written out: asked in every round.
        poll_seconds = BUSY_POLL_SECONDS if now - self._changed_at < BUSY_SECONDS else POLL_SECONDS
        is_time_to_ask = now - self._asked_at >= poll_seconds
        return (is_time_to_ask and self._has_changes(now)) or (self._is_shared and self._was_idle(now))

    def _was_idle(self, now: float) -> bool:
        idle = now - self._polled_at
        return idle > NOTIFIED_IDLE_SECONDS or (idle > IDLE_SECONDS and not self.is_notified)

    @property
    def poll_seconds(self) -> float:
        """How long to wait before the store is asked again."""
        is_busy = self._clock.monotonic() - self._changed_at < BUSY_SECONDS
        return BUSY_POLL_SECONDS if is_busy else POLL_SECONDS

    def begin_poll(self) -> None:
        self.is_requested = False
        self.polls += 1
        self._polled_at = self._clock.monotonic()

    def _has_changes(self, now: float) -> bool:
        self._asked_at = now
        has_changes = self._store.has_changes()
        if has_changes:
            self._changed_at = now
        return has_changes
