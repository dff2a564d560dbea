"""Which calls of a run an edited program keeps: each branch keeps its calls up to its own first difference.

The edited program runs over what is recorded. Where a branch calls something else, it waits for a call that never ends,
so nothing that follows from it is kept, and neither is what follows where that branch is joined. Nothing new runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from mulligan.programs import messages as m
from mulligan.programs.calls import Call, has_key
from mulligan.programs.differences import AskedCall, difference_of_call
from mulligan.programs.errors import Stopped
from mulligan.programs.machine import Machine, asked_call
from mulligan.programs.memory_engine import NoEngine
from mulligan.programs.running import run_function


class Correction(NamedTuple):
    """What is kept, in the order in which it was called; and in words where the edited program differs."""

    kept: tuple[m.CallId, ...]
    differences: tuple[str, ...]


def corrected(
    function: Any,
    inputs: dict[str, Any],
    history: m.History,
    *,
    at: float = 0.0,
    files: Mapping[str, str] | None = None,
) -> Correction:
    """Run the function of an edited program over what is recorded, and say what it keeps."""
    machine = _CorrectingMachine(NoEngine(), history=history, at=at, calls_max=m.CALLS_MAX, files=dict(files or {}))
    kept_later: list[m.CallId] = []
    try:
        run_function(machine, function, inputs)
    except Stopped:
        kept_later = machine.unasked_with_keys()
    return Correction((*machine.kept, *kept_later), tuple(machine.differences))


class _CorrectingMachine(Machine):
    """Takes what is the same, and lets a branch that differs wait for ever."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.kept: list[m.CallId] = []
        self.differences: list[str] = []
        self._replaced: set[m.CallId] = set()

    def deliver_next(self) -> None:
        while self._queue and self._queue[0].id in self._replaced:
            self._queue.popleft()
        super().deliver_next()

    def unasked_with_keys(self) -> list[m.CallId]:
        """Calls with a key that the edited program may still ask for."""
        return [one.id for identity, one in self._recorded.items() if has_key(identity[0])]

    def _is_kept(self, recorded: m.RecordedCall, call: Call[Any]) -> bool:
        return self._keep(recorded, asked_call(call))

    def _keep(self, recorded: m.RecordedCall, asked: AskedCall) -> bool:
        if recorded.is_same(asked.kind, asked.name, asked.digest):
            self.kept.append(recorded.id)
            return True
        self.differences.append(difference_of_call(recorded, asked).message)
        # How the recorded call has ended says nothing of the one that takes its place.
        self._replaced.add(recorded.id)
        self._early.pop((recorded.id.branch, recorded.id.ordinal), None)
        self._inline_ends.pop((recorded.id.branch, recorded.id.ordinal), None)
        return False

    def _compare(self, recorded: m.RecordedCall, asked: AskedCall) -> None:
        """Of a value: without the one that is recorded nothing can go on."""
        if not self._keep(recorded, asked):
            self._stop()

    def _make_value(self, make: Any) -> Any:
        self._stop()

    def _run_inline(self, call: Call[Any], *, is_new: bool) -> None:
        """A new one stops everything, as a new value does: what it gives is not known, and tasks may go on with it."""
        if is_new or call.id not in self._inline_ends:
            self._stop()
        super()._run_inline(call, is_new=False)

    def finish_replay(self) -> None:
        """What was not called is not kept."""

    def finish_replay_at_end(self, end: str) -> None:
        """What was not called is not kept."""

    def _stop(self) -> None:
        self.broken = Stopped()
        raise self.broken
