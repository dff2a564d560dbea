"""What a dead worker has left running on this host."""

from __future__ import annotations

import os

from mulligan.worker.processes import kill_marked


def kill_leftovers(worker: str) -> bool:
    """Kill whatever a dead worker of this host has left: for when it and its supervisor were killed at once."""
    return kill_marked(b"MULLIGAN_WORKER", os.fsencode(worker))
