"""The tasks of a run that wait for capacity, oldest first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from operator import attrgetter

import msgspec

# Place and attempt.
TaskKey = tuple[str, int]


class BacklogEntry(msgspec.Struct, frozen=True):
    """A task in the backlog. `waits`: it waits for another machine, and has other capacity than tasks that compute."""

    number: int
    task_key: TaskKey
    waits: bool


class TaskBacklog:
    """Two queues, numbered together: thousands of tasks that wait for another machine must not hide one other."""

    def __init__(self) -> None:
        self._computing: deque[BacklogEntry] = deque()
        self._waiting: deque[BacklogEntry] = deque()
        self._first = self._last = 0

    def __bool__(self) -> bool:
        return bool(self._computing or self._waiting)

    def __iter__(self) -> Iterator[TaskKey]:
        return (entry.task_key for entry in sorted((*self._computing, *self._waiting), key=attrgetter("number")))

    @property
    def has_only_waiting(self) -> bool:
        return not self._computing

    def clear(self) -> None:
        self._computing.clear()
        self._waiting.clear()

    def append(self, task_key: TaskKey, *, waits: bool) -> None:
        self._last += 1
        (self._waiting if waits else self._computing).append(BacklogEntry(self._last, task_key, waits))

    def append_first(self, task_key: TaskKey, *, waits: bool) -> None:
        self._first -= 1
        (self._waiting if waits else self._computing).appendleft(BacklogEntry(self._first, task_key, waits))

    def pop(self, *, skips_waiting: bool) -> BacklogEntry | None:
        """Remove and return the oldest; with `skips_waiting` the oldest that does not wait for another machine."""
        computing, waiting = self._computing, None if skips_waiting else self._waiting
        if waiting and not (computing and computing[0].number < waiting[0].number):
            return waiting.popleft()
        return computing.popleft() if computing else None

    def put_back(self, entries: Iterable[BacklogEntry]) -> None:
        """Put entries back that were removed, in the order in which they were."""
        for entry in reversed(list(entries)):
            (self._waiting if entry.waits else self._computing).appendleft(entry)
