"""The colours of a page: those of the drawings, as variables, for light and for dark."""

from __future__ import annotations

from mulligan.service.drawing.palette import DARK, FONT, LIGHT, Palette

# What an attempt came to, and the colour that it wears.
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


def variables() -> str:
    """The style sheet's first lines."""
    return (
        f":root{{color-scheme:light dark;--font:{FONT};{_of(LIGHT)}}}"
        f"@media (prefers-color-scheme:dark){{:root{{{_of(DARK)}}}}}"
        f"@media print{{:root{{color-scheme:light;{_of(LIGHT)}}}}}"
    )


def _of(palette: Palette) -> str:
    names = ("page", "card", "border", "text", "muted", "line", "faint")
    plain = "".join(f"--{name}:{getattr(palette, name)};" for name in names)
    tones = (
        f"--{name}:{palette.tones[tone][1]};--{name}-wash:{palette.tones[tone][0]};" for name, tone in _TONES.items()
    )
    return plain + "".join(tones)
