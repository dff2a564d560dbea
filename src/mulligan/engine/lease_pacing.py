"""How the loop keeps pace with its store: when it is worth asking for tasks, and how long a commit waits for others."""

from __future__ import annotations

from mulligan.ports import Clock

# How often a store that others share is asked for tasks without a sign that there are any.
LEASE_AGAIN_SECONDS = 0.2
# How often in a row there may be no room for a task of the store, while our own tasks have some.
ROUNDS_WITHOUT_ROOM_MAX = 2
# From when on a commit is so slow that it is worth to wait for company, how long at most, and how fast that is learnt.
SLOW_COMMIT_SECONDS, GATHER_SECONDS_MAX, WEIGHT_OF_THE_LAST = 0.0008, 0.001, 0.1


class Asking:
    """Whether the store may have tasks for us: somebody queued some, or there is more room than when we last asked."""

    def __init__(self, clock: Clock, *, is_shared: bool) -> None:
        self._clock = clock
        self.may_have_tasks = True
        self.has_more_room = False
        # In a file of our own the question costs next to nothing.
        self._seconds = LEASE_AGAIN_SECONDS if is_shared else 0.0
        self._asked_at = 0.0
        self._rounds_without_room = 0

    def has_no_room(self) -> None:
        """We would have asked, and what is in our own hands has taken all the room."""
        self._rounds_without_room += 1

    @property
    def comes_first(self) -> bool:
        """Whether it is time to ask before our own tasks take the room: else those in the store might wait for ever."""
        return self._rounds_without_room >= ROUNDS_WITHOUT_ROOM_MAX

    def is_worth_it(self, *, may_have_others: bool) -> bool:
        """A task that did not fit before may fit when something has ended: worth a question now and then."""
        has_waited = self._clock.monotonic() - self._asked_at >= self._seconds
        return self.may_have_tasks or (self.has_more_room and may_have_others and has_waited)

    def asked(self, *, may_have_more: bool) -> None:
        self._asked_at, self.has_more_room, self.may_have_tasks = self._clock.monotonic(), False, may_have_more
        self._rounds_without_room = 0


class Commits:
    """How long a commit takes, on average of late."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def took(self, seconds: float) -> None:
        self._seconds += (seconds - self._seconds) * WEIGHT_OF_THE_LAST

    @property
    def worth_waiting_seconds(self) -> float:
        """How long one may wait for others that are about to end: a small part of what a slow commit takes."""
        return 0.0 if self._seconds < SLOW_COMMIT_SECONDS else min(self._seconds / 2, GATHER_SECONDS_MAX)
