"""Exits of tasks that died of the signal by which their worker was signalled to end.

A scheduler may signal every process of a job at once. What dies of that was interrupted: it did not fail. The signals
arrive one after the other, so a task may be dead before its worker has been signalled.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import msgspec

from mulligan.worker.task_reports import ProcessExit

# How long the exit of a task that died of SIGTERM waits for the worker to be signalled as well.
HOLD_SECONDS = 0.3
_SIGTERM = 15
# How a shell exits whose command died of it.
_SIGTERM_STATUS = 128 + _SIGTERM


class SharedSignal:
    """Decides whether an exit is an interruption, and keeps exits of which that is not known yet."""

    def __init__(self, was_signalled: Callable[[], bool], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._was_signalled = was_signalled
        self._monotonic = monotonic
        # By token: until when to wait, and how it ended.
        self.held: dict[int, tuple[float, ProcessExit]] = {}

    def add(self, token: int, process_exit: ProcessExit) -> None:
        """Note how the process of a task ended. `take` gives it back, if need be a moment later."""
        is_doubtful = _may_be_interrupted(process_exit) and (
            process_exit.signal == _SIGTERM or process_exit.exit_code == _SIGTERM_STATUS
        )
        self.held[token] = (self._monotonic() + HOLD_SECONDS if is_doubtful else -math.inf, process_exit)

    @property
    def next_due(self) -> float:
        """When the first of the kept exits has waited long enough."""
        return min((due for due, _ in self.held.values()), default=math.inf)

    def take(self) -> list[tuple[int, ProcessExit]]:
        """The exits of which it is known now what they are: all of them when the worker was signalled."""
        if not self.held:
            return []
        was_signalled, now = self._was_signalled(), self._monotonic()
        decided = [token for token, (due, _) in self.held.items() if was_signalled or due <= now]
        exits = [(token, self.held.pop(token)[1]) for token in decided]
        return [
            (token, _interrupted(one) if was_signalled and _may_be_interrupted(one) else one) for token, one in exits
        ]

    def clear(self) -> None:
        self.held.clear()


def _may_be_interrupted(process_exit: ProcessExit) -> bool:
    """Whether it failed by itself, as far as the supervisor knows."""
    return not process_exit.stop_reason and process_exit.status != 0


def _interrupted(process_exit: ProcessExit) -> ProcessExit:
    return msgspec.structs.replace(process_exit, stop_reason="interrupted")
