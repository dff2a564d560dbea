"""What was measured, as Markdown; and the part of a page that it is written into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .charts import CHARTS
from .figures import Line, Point, line, series_of, stores_of
from .plots import count_said

BEGIN, END = "<!-- growth: begin -->", "<!-- growth: end -->"
# A power of the size below which a line is called flat.
FLAT_BELOW = 0.15
TITLES = {
    "steps": ("Steps in a run", "steps"),
    "runs": ("Runs in the store", "runs"),
    "log": ("Events in the log of a run", "events"),
    "items": ("Items of a map", "items"),
    "workers": ("Workers on one PostgreSQL", "workers"),
    "waiting": ("Runs that wait", "runs that wait"),
    "children": ("Child runs, and the needs of one step", "child runs or needs"),
}
# Where they stand in the page: each below the group that it shows most of.
_CHARTS_OF = {
    "steps": ("steps", "rates", "memory"),
    "runs": ("runs-sqlite", "runs-postgresql"),
    "log": ("log",),
    "workers": ("workers",),
    "waiting": ("waiting",),
}


def markdown(about: dict[str, Any], points: Sequence[Point]) -> str:
    """The section: what it was measured with, then for each thing that grows its charts and a table for each store."""
    groups = list(dict.fromkeys(one.group for one in points))
    parts = [_head(about), *(part for group in groups for part in _group(points, group))]
    return "\n\n".join(parts)


def write_section(page: Path, about: dict[str, Any], points: Sequence[Point]) -> None:
    """Put the section between its two marks in the page, in place of what was there."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after:
        raise SystemExit(f"{page} has no place for it: a line '{BEGIN}', and below it one '{END}'")
    page.write_text(f"{before}{BEGIN}\n\n{markdown(about, points)}\n\n{END}{after}")


def _head(about: dict[str, Any]) -> str:
    machine = about.get("machine", {})
    of = ", ".join(str(machine[name]) for name in ("system", "filesystem") if name in machine)
    took = f"; it took {about['minutes']:g} minutes" if "minutes" in about else ""
    return (
        f"`{about.get('command', '')}` on {of}, Python {machine.get('python', '')}{took}. Each figure is wall seconds "
        "of a process of its own, the start of Python in it, and in brackets the seconds of the processors."
    )


def _group(points: Sequence[Point], group: str) -> Iterator[str]:
    title, unit = TITLES[group]
    yield f"### {title}"
    named = {one.file: one.title for one in CHARTS}
    yield from (f"![{named[file]}](plots/{file}.svg)" for file in _CHARTS_OF.get(group, ()))
    for store in stores_of(points, group):
        yield _table(points, group, store, unit)


def _table(points: Sequence[Point], group: str, store: str, unit: str) -> str:
    of = [one for one in points if (one.group, one.store) == (group, store)]
    sizes = sorted({one.size for one in of})
    head = f"| {store}, {unit} | " + " | ".join(count_said(size) for size in sizes) + " | grows |"
    rows = [row for series in series_of(of, group, store) for row in _rows(of, group, series, store, sizes)]
    return "\n".join([head, "|---|" + "---:|" * (len(sizes) + 1), *rows])


def _rows(points: Sequence[Point], group: str, series: str, store: str, sizes: Sequence[int]) -> Iterator[str]:
    """A row for the times, and where there is one for the rate; and for the memory of what is a run or rests."""
    found = {one.size: one for one in points if one.series == series}
    grown = line(points, group, series, store, "seconds")
    if any(one.rate for one in found.values()):
        rates = line(points, group, series, store, "rate")
        yield _row(f"{series}, a second", [_said(found, size, _rate) for size in sizes], growth_said(rates))
    yield _row(f"{series}, s", [_said(found, size, _seconds) for size in sizes], growth_said(grown))
    if series in ("run", "child runs", "a minute at rest, processor"):
        memory = line(points, group, series, store, "megabytes")
        yield _row(f"{series}, MB", [_said(found, size, _megabytes) for size in sizes], growth_said(memory))


def growth_said(grown: Line) -> str:
    """`flat`, or how many times as much over the whole, and with which power of the size at its end."""
    if len(grown.points) < 2:
        return ""
    if abs(grown.slope) < FLAT_BELOW and grown.growth < 2:
        return "flat"
    return f"{grown.growth:,.1f}x, size^{grown.slope:.1f}"


def _row(name: str, cells: Sequence[str], growth: str) -> str:
    name = name.replace("|", "\\|")
    return f"| {name} | {' | '.join(cells)} | {growth} |"


def _said(found: dict[int, Point], size: int, say: Any) -> str:
    return say(found[size]) if size in found else ""


def _seconds(one: Point) -> str:
    return f"{one.seconds:.2f} ({one.cpu:.2f})" if one.cpu else f"{one.seconds:.2f}"


def _rate(one: Point) -> str:
    return f"{one.rate:,.0f}" if one.rate else ""


def _megabytes(one: Point) -> str:
    return f"{one.megabytes:.0f}"
