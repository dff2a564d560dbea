"""Starts the process that sends notices while runs are driven here without a server: see `following`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mulligan.service.home_names import has_server_config

if TYPE_CHECKING:
    from mulligan.core.model.events import Entry
    from mulligan.core.state.state import State
    from mulligan.engine.observers import Observer
    from mulligan.service.home import Home

PROGRAM = (sys.executable, "-P", "-m", "mulligan.service.server.notices.following")
LOG = "notices.log"


def notifying(observer: Observer, home: Home, pid: int) -> Observer:
    """The observer, which has notices sent as well if the home has targets for them."""
    return NotifyingObserver(observer, home, pid) if has_server_config(str(home.folder)) else observer


class NotifyingObserver:
    """Passes everything on, and has notices sent from the first commit on of a run that may have some."""

    def __init__(self, observer: Observer, home: Home, pid: int) -> None:
        self._observer = observer
        self._home = home
        self._pid = pid
        self._is_waiting = True
        self.trouble, self.tick = observer.trouble, observer.tick

    def committed(self, state: State, entries: Sequence[Entry], is_ordinary: bool = False) -> None:
        if self._is_waiting and (state.workflow.notify or state.run.notify):
            self._is_waiting = False
            from mulligan.service.runs.changes.starting import launch_in_background

            launch = launch_in_background
            launch([*PROGRAM, str(self._home.folder), str(self._pid)], str(self._home.folder / LOG))
        self._observer.committed(state, entries, is_ordinary)
