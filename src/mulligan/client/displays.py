"""What shows a run while this program drives it: lines on a terminal, a table in a notebook, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol, TextIO

from mulligan.service import Outcome, RunProgress


class Display(Protocol):
    """Shows a run while it is driven. The engine calls `committed`, `trouble` and `tick` between two rounds."""

    progress: RunProgress

    def begin(self, run_id: int, workflow: str) -> None:
        """The run is about to be driven."""

    def committed(self, state: Any, entries: Sequence[Any]) -> None:
        """These facts are written. To be passed on to `progress.update`."""

    def trouble(self, message: str) -> None:
        """A problem with the engine or the store; "" when it is over."""

    def tick(self) -> None:
        """Several times a second, even if nothing happens."""

    def end(self, outcome: Outcome) -> None:
        """The run is no longer driven: it has ended, waits, or was interrupted."""

    def close(self) -> None:
        """Always called last, also after an error."""


class LineDisplay:
    """A line on stderr for each thing that happens."""

    def __init__(self, stream: TextIO) -> None:
        self.progress = RunProgress()
        self._stream = stream

    def begin(self, run_id: int, workflow: str) -> None:
        self._say(f"run {run_id}: {workflow}")

    def committed(self, state: Any, entries: Sequence[Any]) -> None:
        self.progress.update(state, entries)
        for one in self.progress.take_announcements():
            self._say(f"{one.line.at.astimezone():%H:%M:%S} {one.where}  {one.line.text}")

    def trouble(self, message: str) -> None:
        if message:
            self._say(f"! {message}")

    def tick(self) -> None:
        pass

    def end(self, outcome: Outcome) -> None:
        words = outcome.status if outcome.ending == "ended" else outcome.ending
        self._say(f"run {outcome.run_id} {words} in {outcome.seconds:.1f}s")

    def close(self) -> None:
        pass

    def _say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


def choose_display(show: bool | None) -> Display | None:
    """What shows the run: what was asked for; by default something if a person looks, on a terminal."""
    is_shown = sys.stderr.isatty() if show is None else show
    return LineDisplay(sys.stderr) if is_shown else None
