"""Prodigy's durations: a number is seconds, a text has its units (`500ms`, `2m 30s`)."""

from __future__ import annotations

import re
from typing import Any

from mulligan.language.quantities import duration
from mulligan.language.shapes import DurationShape

_BLANK = re.compile(r"(?<=[a-z])\s+(?=\d)")


def _seconds(value: Any) -> float:
    return duration(_BLANK.sub("", value.strip()) if isinstance(value, str) else value)


SECONDS = DurationShape("a number of seconds", _seconds, {"anyOf": [{"type": "string"}, {"type": "number"}]})


def spelled(seconds: float) -> str:
    """A duration as our files spell it."""
    return f"{seconds:g}s" if seconds == round(seconds, 3) and seconds < 1e6 else f"{seconds:f}s"


def fibonacci(count: int) -> list[int]:
    """By how much each delay is as long as the first, where they grow so."""
    figures = [1, 1]
    while len(figures) < count:
        figures.append(figures[-1] + figures[-2])
    return figures[:count]
