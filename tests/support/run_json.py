"""A run as `run --json` prints it, from its state alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mulligan.core.state.state import State
from mulligan.history.obstacles import Obstacle, WorkerPool
from mulligan.history.views import WaitFinder
from mulligan.service.runs.views.run_view import RUN, part, view_state


def run_json(
    state: State, breaker_waits: Mapping[str, Obstacle] | None = None, pool: WorkerPool | None = None
) -> dict[str, Any]:
    """`breaker_waits`: the places that wait for a breaker, and for which. `pool`: the workers that there are."""
    found: dict[str, Any] = msgspec.to_builtins(part(view_state(state, WaitFinder(state, breaker_waits, pool)), RUN))
    return found
