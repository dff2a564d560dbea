"""The parts that pages are made of, those of the dashboard and reports: links, statuses, tables, bars, lists, notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from mulligan.history.route_outcomes import FailureOutcome
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import status_label, status_tone

# How a failed visit ended: its colour and its sign.
OUTCOME_LOOKS = {
    FailureOutcome.UNHANDLED: ("bad", "✕"),
    FailureOutcome.ALLOWED: ("idle", "○"),
    FailureOutcome.IN_PROGRESS: ("now", "▸"),
    FailureOutcome.REPAIRED: ("good", "✓"),
}
RUNG_NAMES = {"retry": "Retry", "handle": "Handle", "triage": "Triage", "route": "Route", "end": "Converge"}

# -- links and words -------------------------------------------------------------------------------------------------


def path_to(*parts: object) -> str:
    """The path of a page: `path_to("runs", 7, "steps", "a/b")` is `/runs/7/steps/a%2Fb`."""
    return "/" + "/".join(quote(str(part), safe="") for part in parts)


def link_with(path: str, **query: object) -> str:
    """A path with those parameters that are not empty; one with several values stands there several times."""
    given = {name: value for name, value in query.items() if value not in (None, "", False, ())}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def link(text: object, *path: object, **attributes: Any) -> Html:
    """A link to the page with this path: `link("nightly", "workflows", "nightly")`."""
    return element("a", text, href=path_to(*path), **attributes)


def run_link(run_id: int) -> Html:
    return link(f"run {run_id}", "runs", run_id, class_="nowrap")


def step_link(run_id: int, step: str, text: object = "", **attributes: Any) -> Html:
    """A link to a step, or to the step of an item: `check` of `check[3]`."""
    return link(text or step, "runs", run_id, "steps", step.partition("[")[0], **attributes)


def button_link(text: str, href: str, kind: str = "", **attributes: Any) -> Html:
    """A link that looks like a button."""
    return element("a", text, href=href, class_=f"button {kind}".strip(), **attributes)


def moment(at: datetime, show: str = "ago") -> Html:
    """A time, which the browser writes in the zone of its reader: `ago`, `time`, `day` or `clock`."""
    return element("time", f"{at:%Y-%m-%d %H:%M} UTC", datetime=at.isoformat(), data_show=show)


def badge(text: str, tone: str, **attributes: Any) -> Html:
    """How what the page is about stands, beside its title."""
    return element("span", text, class_=f"badge {tone}", **attributes)


def status(name: str, label: object = "", *, tone: str = "", **attributes: Any) -> Html:
    """The status of a run or a step, in its colour, or in that of `tone`."""
    return element("span", label or status_label(name), class_=f"status {tone or status_tone(name)}", **attributes)


def muted(*text: object) -> Html:
    return element("span", *text, class_="muted")


def note(*text: object) -> Html:
    return element("p", *text, class_="note")


def left_out(count: int, words: str = "more", *, before: str = "and") -> Html:
    """`and 12 more steps`; nothing if none is left out."""
    return note(f"{before} {count:,} {words}".strip()) if count > 0 else Html("")


def text_block(text: str, **attributes: Any) -> Html:
    """Text of a step or a program, as it is. It can be scrolled with the keyboard."""
    return element("pre", text, tabindex="0", **attributes)


def details(title: object, *inside: object, kind: str = "inner", **attributes: Any) -> Html:
    """What unfolds below its title."""
    return element("details", element("summary", title), *inside, class_=kind or None, **attributes)


def section(title: str, name: str, *inside: object) -> Html:
    """A part of a report, with its title."""
    return element("section", element("h2", title, id=name), *inside)


def paged(*links: object, kind: str = "pages") -> Html:
    """Links to other pages of a list; nothing without any."""
    return element("nav", *links, class_=kind, aria_label="Pages") if any(links) else Html("")


# -- lists and tables ------------------------------------------------------------------------------------------------


def pairs(entries: Iterable[tuple[object, object]], kind: str = "facts") -> Html:
    """Names and what they are, in two columns."""
    return element("dl", *(Html(element("dt", name) + element("dd", value)) for name, value in entries), class_=kind)


def bullets(lines: Iterable[object], kind: str = "", **attributes: Any) -> Html:
    """A list of lines."""
    return element("ul", *(element("li", line) for line in lines), class_=kind or None, **attributes)


def tiles(entries: Iterable[tuple[str, object, str]], kind: str = "tiles") -> Html:
    """Figures with their names, each in a tone."""
    rows = (
        element("div", element("dt", name), element("dd", value, class_=tone or None)) for name, value, tone in entries
    )
    return element("dl", *rows, class_=kind)


def legend(entries: Iterable[tuple[str, object]], **attributes: Any) -> Html:
    """What the colours and lines of a chart mean, by their classes."""
    rows = (element("li", element("i", class_=kind), words) for kind, words in entries)
    return element("ul", *rows, class_="legend", **attributes)


class Column(NamedTuple):
    """A column of a table: its title, and the class of its cells."""

    title: object
    kind: str = ""

    @property
    def is_right(self) -> bool:
        """Whether it has figures, which stand below the end of its title."""
        return "n" in self.kind.split()


class Row(NamedTuple):
    """A row of a table: what its cells have, and its attributes."""

    cells: Sequence[object]
    attributes: Mapping[str, Any]


class Cell(Html):
    """A cell that has a class of its own."""

    __slots__ = ()


def figure(title: str) -> Column:
    """A column of figures, which stand to the right."""
    return Column(title, "n")


def row(*cells: object, **attributes: Any) -> Row:
    return Row(cells, attributes)


def cell(*inside: object, kind: str = "", **attributes: Any) -> Cell:
    """A cell that differs from others of its column."""
    return Cell(element("td", *inside, class_=kind or None, **attributes))


def name_cell(*inside: object) -> Cell:
    """The cell that says what its row is about."""
    return Cell(element("th", *inside, scope="row"))


def table(columns: Iterable[object], rows: Iterable[Row], *, label: str, keyed: bool = False) -> Html:
    """A table that scrolls sideways on a narrow screen. `keyed`: j and k move through its rows."""
    heads = [one if isinstance(one, Column) else Column(one) for one in columns]
    titles = join_html(element("th", one.title, class_="n" if one.is_right else None, scope="col") for one in heads)
    body = join_html(element("tr", *_cells(heads, one.cells), **one.attributes) for one in rows)
    inner = (element("thead", element("tr", titles)), element("tbody", body))
    whole = element("table", *inner, aria_label=label, data_rows=keyed)
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=label)


def _cells(heads: Sequence[Column], cells: Sequence[object]) -> Iterable[Html]:
    return (
        inside if isinstance(inside, Cell) else element("td", inside, class_=head.kind or None)
        # A cell that spans several columns is the only one of its row.
        for head, inside in zip(heads if len(cells) > 1 else heads[:1], cells, strict=True)
    )


# -- bars ------------------------------------------------------------------------------------------------------------


def gauge(share: float, tone: str, *, width: int = 60, height: int = 8) -> Html:
    """How much of something is in use, or worked. The figures stand beside it."""
    room, used = (
        element("rect", x=0, y=0, width=size, height=height, rx=2, class_=kind) if size else ""
        for size, kind in ((width, "room"), (round(width * min(share, 1.0), 1), tone))
    )
    about = {"viewBox": f"0 0 {width} {height}", "preserveAspectRatio": "none", "aria_hidden": "true"}
    return element("svg", room, used, class_="share", width=width, height=height, **about)


def stacked_bar(shares: Iterable[tuple[str, int]], label: str) -> Html:
    """Counts by their tones, as parts of one bar. No style attribute: a page of the dashboard allows none."""
    found = [(kind, count) for kind, count in shares if count]
    total, left, pieces = sum(count for _, count in found), 0.0, []
    for kind, count in found:
        share = count / total * 100
        pieces.append(element("rect", class_=kind, x=f"{left:.2f}%", y=0, width=f"{share:.2f}%", height=8))
        left += share
    return element("svg", *pieces, class_="bar", height=8, role="img", aria_label=label)
