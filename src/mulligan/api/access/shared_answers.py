"""Answers that several callers get: one is made, and given to all who may have it.

An answer may be given to a request that came in before the answer was begun: for that request it is as good as its own.
So any number of callers who ask the same at once cost one look into the store, and nobody gets an answer that was
outdated when they asked. Where the store knows whether something was written, an answer also serves until then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from mulligan.api.http.routing import Answer
from mulligan.service.service import Service

# Answers have times in them that pass, and processes may die without a word: an answer is made anew after this time,
# or up to twice as much, so that not all of them are made anew at once.
KEPT_SECONDS = 1.5
BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True)
class _Shared:
    answer: Answer
    size: int
    begun: float
    # That of the store before it was read; None if it has none.
    version: int | str | None


class SharedAnswers:
    """The last answers, for the thread for readers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._service: Service | None = None
        self._answers: dict[Hashable, _Shared] = {}
        self._size = 0
        # The version of the store, and when it was asked for.
        self._version: tuple[float, int | str | None] = (float("-inf"), None)

    def get(self, service: Service, key: Hashable, arrived: float, make: Callable[[], Answer]) -> Answer:
        """The answer to a request that arrived at this moment: one that is there, or a new one."""
        if service is not self._service:
            # It has a connection, and counts versions, of its own.
            self._forget()
            self._service = service
        found = self._answers.get(key)
        if found is not None and found.begun >= arrived:
            return found.answer
        now, version = self._clock(), self._version_since(service, arrived)
        if found is not None and self._is_current(key, found, now, version):
            return found.answer
        answer = make()
        self._keep(key, _Shared(answer, len(answer.value), now, version))
        return answer

    def _version_since(self, service: Service, arrived: float) -> int | str | None:
        """The version of the store at this moment or later: one question serves all who have waited for it."""
        if self._version[0] < arrived:
            asked = self._clock()
            self._version = asked, service.runs.store_version()
        return self._version[1]

    @staticmethod
    def _is_current(key: Hashable, found: _Shared, now: float, version: int | str | None) -> bool:
        if version is None or found.version != version:
            return False
        kept = KEPT_SECONDS * (1 + hash(key) % 100 / 100)
        return found.answer.is_timeless or now - found.begun < kept

    def _keep(self, key: Hashable, made: _Shared) -> None:
        former = self._answers.pop(key, None)
        self._size += made.size - (former.size if former is not None else 0)
        self._answers[key] = made
        while self._size > BYTES_MAX:
            self._size -= self._answers.pop(next(iter(self._answers))).size

    def _forget(self) -> None:
        self._answers.clear()
        self._size = 0
        self._version = (float("-inf"), None)
