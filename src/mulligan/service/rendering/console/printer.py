"""Colours and signs, where the terminal has them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TextIO

from mulligan.service.rendering.console.terminal_text import (
    NO_COLOURS,
    OWN_COLOURS,
    tinted,
    visible,
    wants_colour,
    where_there_is_room,
)

_MARKS = {"plain": "·", "good": "✓", "bad": "✗", "try": "↻", "wait": "?"}
_ASCII_MARKS = {"plain": "-", "good": "+", "bad": "x", "try": "~", "wait": "?"}


class Printer:
    """A stream for people, and what it can show."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str]) -> None:
        self.stream = stream
        self.is_coloured = wants_colour(stream, environ)
        self.is_live = stream.isatty() and (environ.get("TERM") or "dumb") not in ("dumb", "unknown")
        self.has_signs = (stream.encoding or "").lower().replace("-", "") == "utf8"

    def tinted(self, text: str, tone: str) -> str:
        """The text in the colour of a tone, if colour is wanted."""
        return tinted(text, tone) if self.is_coloured and text else text

    def mark(self, tone: str) -> str:
        return (_MARKS if self.has_signs else _ASCII_MARKS)[tone]

    def say(self, text: str) -> None:
        with where_there_is_room():
            print(self.shown(text), file=self.stream, flush=True)

    def shown(self, text: str) -> str:
        """The text without control characters, except for our own colours."""
        return visible(text, OWN_COLOURS if self.is_coloured else NO_COLOURS)


def printer() -> Printer:
    """Stderr, where messages for people go."""
    return Printer(sys.stderr, os.environ)
