"""Text for a terminal: without control characters, in colour where that is wanted, durations in a few letters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TextIO

# Regular expressions of the escape sequences that a text may keep: the colours of our own tables, those of any program,
# none.
OWN_COLOURS, ANY_COLOURS, NO_COLOURS = r"\x1b\[(?:[012]|3[1-6])m", r"\x1b\[[0-9;:]*m", r"[^\s\S]"


def visible(text: str, colours: str = NO_COLOURS) -> str:
    """Escape control characters and characters that mislead the reader, except for `colours`."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    from mulligan.service.rendering.formatting import escape_unprintable

    escaped: str = escape_unprintable(text, colours)
    return escaped


# The colours of the tones of a story, and of other words.
_CODES = {"plain": "2", "good": "32", "bad": "31", "try": "33", "wait": "35", "dim": "2", "bold": "1", "run": "36"}


def tinted(text: str, tone: str) -> str:
    """The text in the colour of a tone, if that has one."""
    return f"\033[{_CODES[tone]}m{text}\033[0m" if tone in _CODES else text


@contextmanager
def where_there_is_room() -> Iterator[None]:
    """Ignore output that a full disk or a closed terminal does not take; but raise if the reader of stdout is gone."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError:
        pass  # the run matters more than its output


def wants_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether a stream is a terminal whose user has not turned colours off (no-color.org)."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def length(seconds: float) -> str:
    """A duration: `0.3s`, `42s`, `3m05s`, `2h10m`."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = timedelta(seconds=round(seconds))
    minutes, left = divmod(int(whole.total_seconds()), 60)
    if minutes < 60:
        return f"{minutes}m{left:02}s" if minutes else f"{left}s"
    return f"{minutes // 60}h{minutes % 60:02}m"


def kinds_text(failures: Mapping[str, int]) -> str:
    """The failures by kind: `6 with EXIT_NONZERO 3, 2 with TIMEOUT after 5s`, or `all with EXIT_NONZERO 3`."""
    if len(failures) == 1 and sum(failures.values()) > 1:
        return f"all with {next(iter(failures))}"
    return ", ".join(f"{count:,} with {kind}" for kind, count in failures.items())
