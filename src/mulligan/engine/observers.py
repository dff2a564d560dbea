"""Who looks on while an engine works: a display, a log, a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mulligan.core.model import events as e
from mulligan.core.state.state import State


class Observer(Protocol):
    """Somebody who looks on: a display, a test."""

    def committed(self, state: State, entries: Sequence[e.Entry]) -> None:
        """These facts have become true."""

    def trouble(self, message: str) -> None:
        """Something is wrong with the engine or the store, and what is done about it. "": it is over."""

    def tick(self) -> None:
        """The loop has come round once more: several times a second, also where nothing happens."""


class NullObserver:
    """Nobody looks on."""

    def committed(self, state: State, entries: Sequence[e.Entry]) -> None:
        pass

    def trouble(self, message: str) -> None:
        pass

    def tick(self) -> None:
        pass
