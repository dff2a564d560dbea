"""A run as it goes, on stderr: a line for each thing that matters, and on a terminal what moves now below them.

The live part comes with the first run that takes long enough to be looked at: its library takes time to load.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, TextIO

from mulligan.cli.tables import length
from mulligan.cli.terminal import wants_colour
from mulligan.service.following import Following, Told

# A run that is over before this shows its lines alone.
LIVE_AFTER_SECONDS = 0.4
FRAME_SECONDS = 0.1
PLACE_CHARS_MAX = 24
# What took no longer is not worth a word.
TOOK_SECONDS_MIN = 1.0

_CODES = {"plain": "2", "good": "32", "bad": "31", "try": "33", "wait": "35", "dim": "2", "bold": "1", "run": "36"}
_MARKS = {"plain": "·", "good": "✓", "bad": "✗", "try": "↻", "wait": "?"}
_ASCII_MARKS = {"plain": "-", "good": "+", "bad": "x", "try": "~", "wait": "?"}


class Paper:
    """A stream that people read: what it can show."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str]) -> None:
        self.stream = stream
        self.is_coloured = wants_colour(stream, environ)
        self.is_live = stream.isatty() and (environ.get("TERM") or "dumb") not in ("dumb", "unknown")
        self.has_signs = (stream.encoding or "").lower().replace("-", "") == "utf8"

    def tinted(self, text: str, tone: str) -> str:
        """The text in the colour of a tone, where colour is wanted."""
        return f"\033[{_CODES[tone]}m{text}\033[0m" if self.is_coloured and text else text

    def mark(self, tone: str) -> str:
        return (_MARKS if self.has_signs else _ASCII_MARKS)[tone]

    def say(self, text: str) -> None:
        print(text, file=self.stream, flush=True)


def paper() -> Paper:
    """Stderr: people-talk goes there."""
    return Paper(sys.stderr, os.environ)


class Display:
    """Looks on while runs are driven. Costs a constant for each fact, and draws ten times a second at most."""

    def __init__(self, paper: Paper) -> None:
        self.paper = paper
        self.following = Following()
        self._board: Any = None
        self._begun_at = self._drawn_at = time.monotonic()
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
        now = time.monotonic()
        if now - self._drawn_at < FRAME_SECONDS:
            return
        self._drawn_at = now
        if self._board is None and self.paper.is_live and now - self._begun_at > LIVE_AFTER_SECONDS:
            self._board = import_module("mulligan.cli.board").Board(self.paper)
        self._tell()
        self._draw()

    def close(self) -> None:
        """Nothing moves any more: the lines stay."""
        self._tell()
        if self._board is not None:
            self._board.close()
            self._board = None

    # -- what the person sees ----------------------------------------------------------------------------------------

    def _draw(self) -> None:
        if self._board is not None:
            self._board.draw(self.following, time.monotonic() - self._begun_at, self._trouble)

    def _tell(self) -> None:
        news = self.following.news()
        if news:
            self._say([self._sentence(told) for told in news])

    def _say(self, lines: list[str]) -> None:
        if self._board is not None:
            self._board.say(lines)
        else:
            self.paper.say("\n".join(lines))

    def _sentence(self, told: Told) -> str:
        paper, line = self.paper, told.line
        at = paper.tinted(f"{line.at.astimezone():%H:%M:%S}", "dim")
        name = paper.tinted(f"{told.where:<{self.following.place_chars(PLACE_CHARS_MAX)}}", "bold")
        took = f" in {length(told.seconds)}" if told.seconds and told.seconds >= TOOK_SECONDS_MIN else ""
        text = paper.tinted(f"{line.text}{took}", line.tone)
        return f"{at} {paper.tinted(paper.mark(line.tone), line.tone)} {name}  {text}"
