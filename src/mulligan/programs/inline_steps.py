"""Run an inline step in the process of its program."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_KEY = "MULLIGAN_IDEMPOTENCY_KEY"


@contextmanager
def inline_environment(label: str, visit: int, attempt: int) -> Iterator[None]:
    """Let the code in it read what a worker sets for this step, also for its retries, and not what is of the program.

    Outside of a run there is nothing to read.
    """
    if _KEY not in os.environ:
        yield
        return
    run, _, _ = os.environ[_KEY].partition(":")
    own = {
        "MULLIGAN_STEP": label,
        "MULLIGAN_VISIT": str(visit),
        "MULLIGAN_ATTEMPT": str(attempt),
        _KEY: f"{run}:{label}:{visit}",
    }
    before = {name: os.environ.get(name) for name in (*own, "MULLIGAN_RETRY")}
    os.environ.update(own)
    os.environ.pop("MULLIGAN_RETRY", None)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
