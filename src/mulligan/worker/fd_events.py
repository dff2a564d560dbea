"""Listening to descriptors that come and go."""

from __future__ import annotations

import selectors
from collections.abc import Callable
from typing import Any


def watch_reads(selector: selectors.BaseSelector, source: Any, on_ready: Callable[[], None] | None) -> None:
    """Have `on_ready` called when `source` is readable.

    Its number may still be known: of a descriptor that its owner has closed meanwhile, and that cannot be heard.
    """
    fd = source if isinstance(source, int) else source.fileno()
    if fd in selector.get_map():
        selector.unregister(fd)
    selector.register(source, selectors.EVENT_READ, on_ready)


def watch_writes(selector: selectors.BaseSelector, source: Any, *, is_sending: bool) -> None:
    """Have what is called for `source` called also when it can be written to, as long as `is_sending`."""
    known = selector.get_map().get(source.fileno())
    events = selectors.EVENT_READ | (selectors.EVENT_WRITE if is_sending else 0)
    if known is not None and known.events != events:
        selector.modify(source, events, known.data)


def unwatch(selector: selectors.BaseSelector, fd: int) -> None:
    """Listen no more to a descriptor that nothing was to be called for; its number may be another's by now."""
    known = selector.get_map().get(fd)
    if known is not None and known.data is None:
        selector.unregister(fd)
