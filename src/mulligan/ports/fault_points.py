"""Points at which a test may make the program die."""

from __future__ import annotations

from collections.abc import Callable

# Each is passed once in the code, by `fault_point`.
FAULT_POINTS = {
    "before_turn": "the inbox was read, nothing has been decided",
    "before_commit": "the turn is decided, nothing is written",
    "after_commit": "the turn is written, its holder does not know yet",
    "after_drain": "the turn is written, its tasks are not handed out yet",
    "after_lease": "a worker holds a task, its process does not exist yet",
    "before_report": "a task has ended and is not reported yet",
}

# The same for servers, which drive no runs.
SERVER_FAULT_POINTS = {
    "after_schedule_decision": "a schedule has decided what to start, nothing is started",
    "after_schedule_start": "a run of a schedule exists, the schedule does not know yet",
}

fault_listeners: list[Callable[[str], None]] = []


def fault_point(name: str) -> None:
    """Call the listeners. Free in production: there are none."""
    for listener in fault_listeners:
        listener(name)
