"""Pauses the collection of garbage while many objects are made that stay: trees, workflows, states."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# About three thousand steps.
YOUNG_OBJECTS_MAX = 50_000


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Loading creates many objects and little garbage: collecting would take a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if gc.get_count()[0] > YOUNG_OBJECTS_MAX and not gc.get_freeze_count():
                # Makes them old without a look at each: otherwise the next two collections would go through them all.
                # Not after a small file: what is garbage already would stay until all objects are looked at.
                gc.freeze()
                gc.unfreeze()
            gc.enable()
