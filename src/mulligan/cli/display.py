"""A run as it goes, on stderr: a line for each thing that matters, and on a terminal what moves now below them.

The live part comes with the first run that takes long enough to be looked at: its library takes time to load.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from mulligan.cli.console_style import Paper
from mulligan.cli.tables import length
from mulligan.cli.terminal import where_there_is_room
from mulligan.service import Following, Forecast, Moving, Told, answer_to

# A run that is over before this shows its lines alone.
LIVE_AFTER_SECONDS = 0.4
FRAME_SECONDS = 0.1
PLACE_CHARS_MAX = 24
# What took no longer is not worth a word.
TOOK_SECONDS_MIN = 1.0


class Display:
    """Looks on while runs are driven. Costs a constant for each fact, and draws ten times a second at most."""

    def __init__(
        self,
        paper: Paper,
        home: str = "",
        outlook: Forecast | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.paper = paper
        # What a command that we propose needs beside its words; and what the store knows of how it goes on.
        self._home = home
        self._outlook = outlook
        self.following = Following()
        self._board: Any = None
        self._clock = clock
        self._begun_at = self._drawn_at = clock()
        self._trouble = ""

    # -- what the engine says ----------------------------------------------------------------------------------------

    def committed(self, state: Any, entries: Sequence[Any]) -> None:
        self.following.see(state, entries)
        if self._board is None:
            self._tell()

    def trouble(self, message: str) -> None:
        self._trouble = message
        if message:
            self._tell()
            self._say([self.paper.tinted(f"! {message}", "wait")])
        self._draw()

    def tick(self) -> None:
        now = self._clock()
        if now - self._drawn_at < FRAME_SECONDS:
            return
        self._drawn_at = now
        if self._board is None and self.paper.is_live and now - self._begun_at > LIVE_AFTER_SECONDS:
            self._board = import_module("mulligan.cli.live_board").Board(self.paper, self._home)
        self._tell()
        self._draw()

    def close(self) -> None:
        """Nothing moves any more: the lines stay."""
        self._tell()
        if self._board is not None:
            with where_there_is_room():
                self._board.close()
            self._board = None

    # -- what the person sees ----------------------------------------------------------------------------------------

    def _draw(self) -> None:
        if self._board is not None:
            seconds = self._clock() - self._begun_at
            queued, left = self._look_ahead()
            with where_there_is_room():
                self._board.draw(self.following, queued, seconds, left, self._trouble)

    def _look_ahead(self) -> tuple[Sequence[Moving], str]:
        return self._outlook.look(self.following) if self._outlook is not None else ((), "")

    def _tell(self) -> None:
        news = self.following.news()
        if news:
            self._say([self._sentence(told) for told in news])

    def _say(self, lines: list[str]) -> None:
        if self._board is not None:
            with where_there_is_room():
                self._board.say(lines)
        else:
            self.paper.say("\n".join(lines))

    def _sentence(self, told: Told) -> str:
        paper, line = self.paper, told.line
        at = paper.tinted(f"{line.at.astimezone():%H:%M:%S}", "dim")
        name = paper.tinted(f"{told.where:<{self.following.place_chars(PLACE_CHARS_MAX)}}", "bold")
        took = f" in {length(told.seconds)}" if told.seconds and told.seconds >= TOOK_SECONDS_MIN else ""
        text = paper.tinted(f"{line.text}{took}", line.tone)
        said = f"{at} {paper.tinted(paper.mark(line.tone), line.tone)} {name}  {text}"
        # What moves shows it for as long as it is asked for.
        typed = answer_to(told.ask.run_id, told.ask.kind, told.ask.name) + self._home if told.ask is not None else ""
        return f"{said}\n{' ' * len('00:00:00 ? ')}{typed}" if typed and self._board is None else said
