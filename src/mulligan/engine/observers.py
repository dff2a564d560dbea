"""Observers of an engine: a display, a log, a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mulligan.core.model import events as e
from mulligan.core.state.state import State


class Observer(Protocol):
    """Gets notified of what an engine does."""

    def committed(self, state: State, entries: Sequence[e.Entry], is_ordinary: bool = False) -> None:
        """These facts are written. `is_ordinary`: they are ends of ordinary steps, and starts of the next ones."""

    def trouble(self, message: str) -> None:
        """A problem with the engine or the store, and what is done about it; "" when it is over."""

    def tick(self) -> None:
        """The loop has run once: several times a second, even if nothing happens."""


class NullObserver:
    """Ignores everything."""

    def committed(self, state: State, entries: Sequence[e.Entry], is_ordinary: bool = False) -> None:
        pass

    def trouble(self, message: str) -> None:
        pass

    def tick(self) -> None:
        pass
