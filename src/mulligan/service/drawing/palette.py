"""The colours of a drawing, for light and dark pages. Plain rules, no variables, so that every renderer works."""

from __future__ import annotations

from dataclasses import dataclass

FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,'Noto Sans',sans-serif"

STATUS_GLYPHS = {
    "waiting": "",
    "ready": "",
    "running": "▸",
    "backing_off": "↻",
    "handling": "↻",
    "pending_failed": "?",
    "completed": "✓",
    "failed": "✕",
    "skipped": "-",
    "cancelled": "-",
}
# The colour of a status: a name in the palette.
_STATUS_TONES = {
    "running": "blue",
    "backing_off": "amber",
    "handling": "amber",
    "pending_failed": "orange",
    "completed": "green",
    "failed": "red",
}
_FAINT = ("waiting", "skipped", "cancelled")

# Visible on light and on dark pages.
ACTIONS = {
    "shell": "#64748b",
    "python": "#3b82f6",
    "http": "#14b8a6",
    "sql": "#06b6d4",
    "agent": "#a855f7",
    "workflow": "#6366f1",
    "other": "#94a3b8",
}


@dataclass(frozen=True, slots=True)
class Palette:
    page: str
    card: str
    border: str
    text: str
    muted: str
    line: str
    faint: str
    tones: dict[str, tuple[str, str]]


LIGHT = Palette(
    page="#ffffff",
    card="#f8fafc",
    border="#cbd5e1",
    text="#0f172a",
    muted="#64748b",
    line="#64748b",
    faint="#d8dee7",
    tones={
        "red": ("#fef2f2", "#dc2626"),
        "green": ("#f0fdf4", "#16a34a"),
        "blue": ("#eff6ff", "#2563eb"),
        "amber": ("#fffbeb", "#b45309"),
        "orange": ("#fff7ed", "#ea580c"),
    },
)
DARK = Palette(
    page="#0d1117",
    card="#161b22",
    border="#3b4452",
    text="#e6edf3",
    muted="#9aa7b5",
    line="#8b98a9",
    faint="#2d3642",
    tones={
        "red": ("#2a1215", "#f87171"),
        "green": ("#0f2417", "#4ade80"),
        "blue": ("#10203a", "#60a5fa"),
        "amber": ("#2a1f0a", "#fbbf24"),
        "orange": ("#2c180b", "#fb923c"),
    },
)


def style() -> str:
    """The style sheet: shapes once, colours twice."""
    dark = "".join(_colours(DARK))
    return f"{_SHAPES}{''.join(_colours(LIGHT))}@media (prefers-color-scheme:dark){{{dark}}}"


_SHAPES = (
    f".mulligan text{{font-family:{FONT};text-anchor:middle}}"
    ".mulligan .title{font-size:14px;font-weight:600}"
    ".mulligan .small,.mulligan .condition,.mulligan .counts,.mulligan .label{font-size:11px}"
    ".mulligan .condition{font-style:italic}"
    ".mulligan .line{fill:none;stroke-width:1.5}"
    ".mulligan .line.failure{stroke-dasharray:5 4}"
    ".mulligan .line.loop{stroke-width:2}"
    ".mulligan .card{stroke-width:1.25}"
    ".mulligan .inner{fill:none;stroke-width:1}"
    ".mulligan .glyph{font-size:11px;font-weight:700}"
    ".mulligan .is-skipped .card,.mulligan .is-cancelled .card{stroke-dasharray:4 3}"
    + "".join(f".mulligan .do-{name}{{fill:{colour}}}" for name, colour in ACTIONS.items())
)


def _colours(palette: Palette) -> list[str]:
    rules = [
        f".page,.behind{{fill:{palette.page}}}",
        f".card{{fill:{palette.card};stroke:{palette.border}}}",
        f".inner{{stroke:{palette.border}}}",
        f".title{{fill:{palette.text}}}",
        f".small,.condition,.counts{{fill:{palette.muted}}}",
        f".counts.bad{{fill:{palette.tones['red'][1]}}}",
        f".group{{fill:{palette.line}}}",
        f".end .card{{fill:{palette.border};stroke:{palette.border}}}",
        f".approve .card,.triage .card{{stroke:{palette.tones['orange'][1]}}}",
        f".mark{{fill:{palette.muted}}}",
        f".glyph{{fill:{palette.page}}}",
        *_line_colours("success", palette.line, palette.muted),
        *_line_colours("failure", palette.tones["red"][1], palette.tones["red"][1]),
        *_line_colours("loop", palette.tones["amber"][1], palette.tones["amber"][1]),
        *_line_colours("leaf", palette.faint, palette.faint),
        *_status_colours(palette),
    ]
    return [_scope_rule(rule) for rule in rules]


def _line_colours(kind: str, line: str, words: str) -> list[str]:
    return [f".line.{kind}{{stroke:{line}}}", f".tip.{kind}{{fill:{line}}}", f".label.{kind}{{fill:{words}}}"]


def _status_colours(palette: Palette) -> list[str]:
    rules = [f".is-{status} .title{{fill:{palette.muted}}}" for status in _FAINT]
    for status, tone in _STATUS_TONES.items():
        fill, stroke = palette.tones[tone]
        rules += [f".is-{status} .card{{fill:{fill};stroke:{stroke}}}", f".is-{status} .mark{{fill:{stroke}}}"]
    return rules


def _scope_rule(rule: str) -> str:
    """Limit a rule to our drawings: an SVG inside a page shares its style with that page."""
    selectors, _, body = rule.partition("{")
    return ",".join(f".mulligan {selector}" for selector in selectors.split(",")) + "{" + body
