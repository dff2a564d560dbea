"""How times, durations and statuses look on a page: their text, and their colours for light and dark."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from importlib.resources import files

from mulligan.core.model.text.formatting import format_duration, format_time
from mulligan.service.rendering.drawing.palette import DARK, FONT, LIGHT, Palette, page_style
from mulligan.service.rendering.page.markup import Html, element

# The colour of an attempt's outcome.
OUTCOMES = {
    "succeeded": "good",
    "failed": "bad",
    "running": "now",
    "queued": "idle",
    "lost": "odd",
    "interrupted": "odd",
    "cancelled": "odd",
}
# The colour of a status of a run or a step.
STATUSES = {
    "completed": "good",
    "failed": "bad",
    "running": "now",
    "ready": "now",
    "backing_off": "try",
    "handling": "try",
    "paused": "ask",
    "pending_failed": "ask",
}
_TONES = {"good": "green", "bad": "red", "now": "blue", "try": "amber", "ask": "orange"}


def css_variables() -> str:
    """The CSS variables for the colours, for light, dark and print."""
    return (
        f":root{{color-scheme:light dark;--font:{FONT};{_of(LIGHT)}}}"
        f"@media (prefers-color-scheme:dark){{:root{{{_of(DARK)}}}}}"
        f"@media print{{:root{{color-scheme:light;{_of(LIGHT)}}}}}"
    )


def chart_styles() -> str:
    """The colours and the style sheet of the charts and drawings, for a page whose reader may choose light or dark."""
    return (
        f":root{{color-scheme:light;--font:{FONT};{_of(LIGHT)}}}\n"
        f":root[data-theme=dark]{{color-scheme:dark;{_of(DARK)}}}\n"
        f"@media print{{:root,:root[data-theme=dark]{{color-scheme:light;{_of(LIGHT)}}}}}\n"
    ) + f"{page_style()}\n{read_styles('charts.css')}"


def read_styles(name: str) -> str:
    """One of our style sheets."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def _of(palette: Palette) -> str:
    names = ("page", "card", "border", "text", "muted", "line", "faint")
    plain = "".join(f"--{name}:{getattr(palette, name)};" for name in names)
    tones = (
        f"--{name}:{palette.tones[tone][1]};--{name}-wash:{palette.tones[tone][0]};" for name, tone in _TONES.items()
    )
    return plain + "".join(tones)


def time_element(at: datetime, **attributes: str) -> Html:
    """A time as an element that programs can read too."""
    return element("time", format_time(at), datetime=at.isoformat(), **attributes)


def format_elapsed(seconds: float) -> str:
    """A duration, in milliseconds if it is short."""
    return (
        f"{seconds * 1000:.0f}ms" if seconds < 0.1 else format_duration(round(seconds, 2) if seconds < 10 else seconds)
    )


def whole_page(title: str, styles: Iterable[str], *body: object) -> str:
    """A page that needs nothing else: no scripts, no fonts, no links to other servers."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        # Should any markup get past the escaping, it can load nothing and run nothing.
        element("meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'"),
        element("title", title),
        element("style", Html(css_variables() + "".join(map(read_styles, styles)))),
    )
    return f"<!doctype html>\n{element('html', head, element('body', *body), lang='en')}\n"


def status_tone(status: str) -> str:
    """The colour of a status, as a class: `good`, `bad`, `now`, `try`, `ask`, `idle`."""
    return STATUSES.get(status, "idle")


def status_label(status: str) -> str:
    """A status as the page shows it."""
    return {"pending_failed": "parked", "backing_off": "waiting to retry"}.get(status, status.replace("_", " "))
