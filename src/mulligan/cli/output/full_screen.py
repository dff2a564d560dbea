"""A terminal that shows one picture after the other, until Ctrl-C."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TextIO

from mulligan.cli.output.terminal import UsageRefused, visible, wants_colour
from mulligan.service.rendering.console.terminal_text import NO_COLOURS, OWN_COLOURS
from mulligan.service.service import Service

_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\033[H", "\033[K", "\033[J"
# The alternate screen: leaving it restores what was shown before.
_ENTER, _LEAVE = "\033[?1049h\033[?25l", "\033[?25h\033[?1049l"
LINES = 24


class Screen:
    """A terminal; `lines`: its height, if it cannot be asked."""

    def __init__(self, stream: TextIO, lines: int | None = None) -> None:
        self._stream = stream
        self._lines = lines

    @classmethod
    def of_stdout(cls, option: str) -> Screen:
        """The terminal; raises `UsageRefused` if stdout is not one."""
        if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
            raise UsageRefused(
                f"{option} needs a terminal",
                hint=f"in a script, repeat the command without {option}, for example with --json",
            )
        return cls(sys.stdout)

    def repeat(
        self, service: Service, picture: Callable[[], Sequence[str]], seconds: float, seconds_min: float
    ) -> None:
        """Show `picture()` whenever the store has changed, and at least every so many seconds, until Ctrl-C.

        The last picture stays on the terminal.
        """
        lines: Sequence[str] = ()
        self._write(_ENTER)
        try:
            while True:
                lines = picture()
                self._draw(lines)
                drawn_at = time.monotonic()
                service.driving.wait_for_changes(seconds)
                time.sleep(max(0.0, drawn_at + seconds_min - time.monotonic()))
        except KeyboardInterrupt:
            pass
        finally:
            self._write(_LEAVE + "".join(f"{self._shown(line)}\n" for line in lines))

    def _draw(self, lines: Sequence[str]) -> None:
        height = self._lines or _height(self._stream)
        shown = [self._shown(line) for line in lines]
        if len(shown) > height - 1:
            shown = [*shown[: height - 2], f"… {len(shown) - height + 2} more lines"]
        self._write(_HOME + "".join(f"{line}{_REST_OF_LINE}\n" for line in shown) + _REST_OF_SCREEN)

    def _shown(self, line: str) -> str:
        return visible(line, OWN_COLOURS if wants_colour(self._stream, os.environ) else NO_COLOURS)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _height(stream: TextIO) -> int:
    said = os.environ.get("LINES", "")
    return (int(said) if said.isdecimal() else 0) or os.get_terminal_size(stream.fileno()).lines or LINES
