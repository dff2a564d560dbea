"""Register descriptors with a selector."""

from __future__ import annotations

import selectors
from collections.abc import Callable
from typing import Any


def watch_reads(selector: selectors.BaseSelector, source: Any, on_ready: Callable[[], None] | None) -> None:
    """Call `on_ready` when `source` is readable.

    Its number may still be registered, for a descriptor that was closed meanwhile.
    """
    fd = source if isinstance(source, int) else source.fileno()
    if fd in selector.get_map():
        selector.unregister(fd)
    selector.register(source, selectors.EVENT_READ, on_ready)


def watch_writes(selector: selectors.BaseSelector, source: Any, *, is_sending: bool) -> None:
    """Call the callback of `source` also when it is writable, while `is_sending`."""
    known = selector.get_map().get(source.fileno())
    events = selectors.EVENT_READ | (selectors.EVENT_WRITE if is_sending else 0)
    if known is not None and known.events != events:
        selector.modify(source, events, known.data)


def unwatch(selector: selectors.BaseSelector, fd: int) -> None:
    """Unregister a descriptor that has no callback; its number may belong to another one by now."""
    known = selector.get_map().get(fd)
    if known is not None and known.data is None:
        selector.unregister(fd)
