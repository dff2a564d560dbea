"""The marks of a chart: named above it, and as thin lines behind every track."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mulligan.service.page.markup import Html, element, joined


class Mark(NamedTuple):
    """Where on the line, in shares of it, and what it says. A fold is a stretch that is left out."""

    share: float
    said: str
    is_fold: bool = False


def axis(marks: Iterable[Mark]) -> Html:
    """The line of marks above a chart: for the eye alone, since every track says what it shows."""
    shown = joined(
        element("span", mark.said, class_="fold" if mark.is_fold else None, style=f"left:{mark.share * 100:.2f}%")
        for mark in marks
    )
    inside = (element("span"), element("div", shown, class_="axis"), element("span"))
    return element("div", *inside, class_="lane head", aria_hidden="true")


def grid(marks: Iterable[Mark]) -> str:
    """The style that draws the marks behind the tracks: one gradient, said once."""
    stops = ",".join(_stop(f"{mark.share * 100:.2f}%") for mark in marks)
    return f"--lines:linear-gradient(90deg,{stops})" if stops else ""


def _stop(at: str) -> str:
    return f"transparent {at},var(--grid) {at},var(--grid) calc({at} + 1px),transparent calc({at} + 1px)"
