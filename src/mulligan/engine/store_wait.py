"""How an engine without an executor waits: nothing runs here that could wake it, so it waits for the store."""

from __future__ import annotations

import select
import time
from collections.abc import Callable


def _wait_for(fd: int | None, seconds: float) -> None:
    if fd is None:
        time.sleep(seconds)
    else:
        select.select([fd], [], [], seconds)


class StoreWait:
    """Waits until the descriptor of the store is readable, at most for so many seconds."""

    def __init__(self, wait_for: Callable[[int | None, float], object] = _wait_for) -> None:
        self._wait_for = wait_for
        self._fd: int | None = None

    def watch(self, fd: int | None) -> None:
        self._fd = fd

    def wait(self, seconds: float) -> None:
        if seconds > 0:
            self._wait_for(self._fd, seconds)
