"""The colours of a drawing, for light and dark pages. Plain rules, no variables, so that every renderer works."""

from __future__ import annotations

from dataclasses import dataclass

from mulligan.core.model.actions import TABLE, Colour

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
_COLOURS: dict[Colour, str] = {
    "slate": "#64748b",
    "blue": "#3b82f6",
    "teal": "#14b8a6",
    "cyan": "#06b6d4",
    "purple": "#a855f7",
    "indigo": "#6366f1",
    "grey": "#94a3b8",
}
ACTIONS = {kind: _COLOURS[one.colour] for kind, one in TABLE.items() if one.colour != "grey"}
ACTIONS["other"] = _COLOURS["grey"]


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


# The background of JupyterLab, of VS Code or of Colab, or what stands for it elsewhere.
_BACKGROUND = "var(--jp-layout-color0,var(--vscode-editor-background,var(--colab-primary-surface-color,{})))"
# Cards are see-through on a page that says nothing of its background; what covers lines is not.
_VARIABLES = f"--mulligan-ground:{_BACKGROUND.format('transparent')};--mulligan-page:{_BACKGROUND.format('Canvas')}"
_GROUND, _PAGE = "var(--mulligan-ground)", "var(--mulligan-page)"


def _mix(colour: str, percent: int, ground: str) -> str:
    return f"color-mix(in srgb,{colour} {percent}%,{ground})"


def _embedded() -> Palette:
    """Printer made from the colour of the text around the drawing: right in a light and in a dark notebook.

    A notebook has a theme that may differ from the one that the browser prefers.
    """
    tones = {name: (_mix(tone, 11, _GROUND), _mix(tone, 78, "currentColor")) for name, (_, tone) in LIGHT.tones.items()}
    return Palette(
        page=_PAGE,
        card=_mix("currentColor", 3, _GROUND),
        border=_mix("currentColor", 28, _GROUND),
        text="currentColor",
        muted=_mix("currentColor", 65, "transparent"),
        line=_mix("currentColor", 55, _GROUND),
        faint=_mix("currentColor", 16, _GROUND),
        tones=tones,
    )


# The class of a drawing of its own, and of one inside a notebook: neither takes the colours of the other.
ALONE, EMBEDDED = "mulligan", "mulligan-graph"
# The class of one on a page of the dashboard, whose style sheet has these rules.
ON_PAGE = "page-graph"


def style() -> str:
    """The style sheet of a drawing of its own: shapes once, colours twice."""
    light, dark = _scoped(_colours(LIGHT), ALONE), _scoped(_colours(DARK), ALONE)
    return f"{_scoped(_SHAPES, ALONE)}{light}@media (prefers-color-scheme:dark){{{dark}}}"


def embedded_style() -> str:
    """The style sheet of a drawing inside a notebook, which decides between light and dark."""
    return f".{EMBEDDED}{{{_VARIABLES}}}{_scoped([*_SHAPES, *_colours(_embedded())], EMBEDDED)}"


def page_style() -> str:
    """The rules for drawings on a page that has our colours as variables: one set for light and dark."""
    tones = {"red": "bad", "green": "good", "blue": "now", "amber": "try", "orange": "ask"}
    palette = Palette(
        **{name: f"var(--{name})" for name in ("page", "card", "border", "text", "muted", "line", "faint")},
        tones={name: (f"var(--{tone}-wash)", f"var(--{tone})") for name, tone in tones.items()},
    )
    return _scoped([*_SHAPES, *_colours(palette)], ON_PAGE)


_SHAPES = [
    f"text{{font-family:{FONT};text-anchor:middle}}",
    ".title{font-size:14px;font-weight:600}",
    ".small,.condition,.counts,.label{font-size:11px}",
    ".condition{font-style:italic}",
    ".line{fill:none;stroke-width:1.5}",
    ".line.failure{stroke-dasharray:5 4}",
    ".line.loop{stroke-width:2}",
    ".card{stroke-width:1.25}",
    ".inner{fill:none;stroke-width:1}",
    ".glyph{font-size:11px;font-weight:700}",
    ".is-skipped .card,.is-cancelled .card{stroke-dasharray:4 3}",
    *(f".do-{name}{{fill:{colour}}}" for name, colour in ACTIONS.items()),
]


def _colours(palette: Palette) -> list[str]:
    return [
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


def _line_colours(kind: str, line: str, words: str) -> list[str]:
    return [f".line.{kind}{{stroke:{line}}}", f".tip.{kind}{{fill:{line}}}", f".label.{kind}{{fill:{words}}}"]


def _status_colours(palette: Palette) -> list[str]:
    rules = [f".is-{status} .title{{fill:{palette.muted}}}" for status in _FAINT]
    for status, tone in _STATUS_TONES.items():
        fill, stroke = palette.tones[tone]
        rules += [f".is-{status} .card{{fill:{fill};stroke:{stroke}}}", f".is-{status} .mark{{fill:{stroke}}}"]
    return rules


def _scoped(rules: list[str], scope: str) -> str:
    """Limit rules to our drawings: an SVG inside a page shares its style with that page."""
    return "".join(_scope_rule(rule, scope) for rule in rules)


def _scope_rule(rule: str, scope: str) -> str:
    selectors, _, body = rule.partition("{")
    return ",".join(f".{scope} {selector}" for selector in selectors.split(",")) + "{" + body
