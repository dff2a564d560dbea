"""The live display of a run on stderr: a line for each announcement, and on a terminal the current activities below.

The board of activities appears only for a run that takes long enough, because its library takes time to load.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mulligan.service.driving.debugging import NOTE
from mulligan.service.driving.run_progress import Activity, Announcement, RunProgress
from mulligan.service.rendering.console.printer import Printer
from mulligan.service.rendering.console.terminal_text import length, where_there_is_room
from mulligan.service.rendering.next_commands import command_for_request
from mulligan.service.runs.views.attempt_progress import describe_progress
from mulligan.worker.logs.progress_records import Progress

if TYPE_CHECKING:
    from mulligan.service.driving.outcome import Outcome
    from mulligan.service.runs.statistics.forecast import Forecast

# A run that ends earlier shows only its lines.
LIVE_AFTER_SECONDS = 0.4
FRAME_SECONDS = 0.1
PLACE_CHARS_MAX = 24
# Without a board: how often the progress of running steps is said, and of how many of them.
PROGRESS_SECONDS = 30.0
PROGRESS_LINES_MAX = 8
# A shorter duration is not shown.
TOOK_SECONDS_MIN = 1.0


class Display:
    """Shows runs while they are driven. The cost per fact is constant, and it draws ten times a second at most."""

    def __init__(
        self,
        printer: Printer,
        home: str = "",
        outlook: Forecast | None = None,
        clock: Callable[[], float] = time.monotonic,
        read_progress: Callable[[int, str, int], Progress | None] | None = None,
    ) -> None:
        self.printer = printer
        # The `--home` option of suggested commands; and the source of estimates and queued tasks.
        self._home = home
        self._outlook = outlook
        self.progress = RunProgress(read_progress)
        # Without a board: when the progress of steps was last said, and what was said of each.
        self._reported_at = clock()
        self._reported: dict[tuple[int, str], str] = {}
        self._board: Any = None
        self._clock = clock
        self._begun_at = self._drawn_at = clock()
        self._trouble = ""
        # Steps have the terminal: while one runs, nothing is said.
        self.is_debugged = False

    # -- called before and after the run is driven -------------------------------------------------------------------

    def begin(self, run_id: int, workflow: str) -> None:
        self.printer.say(self.printer.tinted(f"run {run_id}: {workflow}", "bold"))
        if self.is_debugged:
            self.printer.say(self.printer.tinted(f"  {NOTE}", "dim"))

    def end(self, outcome: Outcome) -> None:
        """Nothing: the summary is printed when the board is gone."""

    # -- called by the engine ----------------------------------------------------------------------------------------

    def committed(self, state: Any, entries: Sequence[Any], is_ordinary: bool = False) -> None:
        has_news = self.progress.update(state, entries, is_ordinary)
        if self.is_debugged and any(one.kind == "running" for one in self.progress.activities(PROGRESS_LINES_MAX)):
            return
        if has_news and self._board is None:
            self._show_announcements()

    def trouble(self, message: str) -> None:
        self._trouble = message
        if message:
            self._show_announcements()
            self._say([self.printer.tinted(f"! {message}", "wait")])
        self._draw()

    def tick(self) -> None:
        now = self._clock()
        if now - self._drawn_at < FRAME_SECONDS or self.is_debugged:
            return
        self._drawn_at = now
        if self._board is None and self.printer.is_live and now - self._begun_at > LIVE_AFTER_SECONDS:
            from mulligan.service.rendering.console.live_board import Board

            self._board = Board(self.printer, self._home)
        self._show_announcements()
        if not self.printer.is_live and now - self._reported_at >= PROGRESS_SECONDS:
            self._reported_at = now
            self._say_progress()
        self._draw()

    def close(self) -> None:
        """Remove the board; the lines stay."""
        self._show_announcements()
        if self._board is not None:
            with where_there_is_room():
                self._board.close()
            self._board = None

    # -- shown to the person -----------------------------------------------------------------------------------------

    def _draw(self) -> None:
        if self._board is not None:
            seconds = self._clock() - self._begun_at
            queued, left = self._look_ahead()
            with where_there_is_room():
                self._board.draw(self.progress, queued, seconds, left, self._trouble)

    def _look_ahead(self) -> tuple[Sequence[Activity], str]:
        return self._outlook.look(self.progress) if self._outlook is not None else ((), "")

    def _show_announcements(self) -> None:
        announcements = self.progress.take_announcements()
        if announcements:
            self._say([self._format(announcement) for announcement in announcements])

    def _say_progress(self) -> None:
        """Say how far the running steps are, where that has changed: in a log there is no board."""
        reported = {
            (one.run_id, one.where): describe_progress(one.progress)
            for one in self.progress.activities(PROGRESS_LINES_MAX)
            if one.progress is not None
        }
        fresh = [(key, text) for key, text in reported.items() if text and self._reported.get(key) != text]
        self._reported = reported
        if fresh:
            width, at = self.progress.place_column_width(PLACE_CHARS_MAX), f"{datetime.now():%H:%M:%S}"
            self._say([f"{at} {self.printer.mark('plain')} {where:<{width}}  {text}" for (_, where), text in fresh])

    def _say(self, lines: list[str]) -> None:
        if self._board is not None:
            with where_there_is_room():
                self._board.say(lines)
        else:
            self.printer.say("\n".join(lines))

    def _format(self, announcement: Announcement) -> str:
        printer, line = self.printer, announcement.line
        at = printer.tinted(f"{line.at.astimezone():%H:%M:%S}", "dim")
        name = printer.tinted(f"{announcement.where:<{self.progress.place_column_width(PLACE_CHARS_MAX)}}", "bold")
        seconds = announcement.seconds or 0.0
        took = f" in {length(seconds)}" if seconds >= TOOK_SECONDS_MIN else ""
        text = printer.tinted(f"{line.text}{took}", line.tone)
        shown = f"{at} {printer.tinted(printer.mark(line.tone), line.tone)} {name}  {text}"
        request = announcement.request
        command = command_for_request(request.run_id, request.kind, request.name) if request is not None else ""
        # The board shows the command for as long as the request is open.
        if not command or self._board is not None:
            return shown
        return f"{shown}\n{' ' * len('00:00:00 ? ')}{command}{self._home}"
