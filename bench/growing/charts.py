"""Which charts there are: each a file of docs/project/plots, drawn from what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .figures import Line, Point, line
from .plots import Axis, chart, count_said, megabytes_said, rate_said, seconds_said

SECONDS, RATE, MEGABYTES = Axis("", seconds_said), Axis("", rate_said), Axis("", megabytes_said)


class Drawn(NamedTuple):
    """One line: of which group, series and store, and what it is called."""

    group: str
    series: str
    store: str
    name: str


class Chart(NamedTuple):
    """One file: what it shows of which lines."""

    file: str
    title: str
    note: str
    along: str
    value: str
    axis: Axis
    lines: tuple[Drawn, ...]


def _all(group: str, store: str, *series: str) -> tuple[Drawn, ...]:
    return tuple(Drawn(group, one, store, one) for one in series)


_OF_RUNS = (
    "run",
    "list",
    "list --status running",
    "show",
    "usage",
    "pending",
    "doctor",
    "stats",
    "gc --dry-run --keep 10",
)
CHARTS = (
    Chart(
        "steps",
        "A run of many steps",
        "how long each command takes; best of a few, SQLite",
        "steps in the run",
        "seconds",
        SECONDS,
        _all("steps", "SQLite", "validate", "first task", "show", "explain", "events | head", "resume", "cancel"),
    ),
    Chart(
        "rates",
        "How many a second, as a run grows",
        "commands that do nothing, so that what is seen is the engine; SQLite",
        "in one run",
        "rate",
        RATE,
        (
            Drawn("steps", "run", "SQLite", "steps"),
            Drawn("items", "run", "SQLite", "items of a map"),
            Drawn("children", "child runs", "SQLite", "child runs"),
        ),
    ),
    Chart(
        "memory",
        "Peak memory of a run",
        "of the process that drives it; SQLite",
        "in one run",
        "megabytes",
        MEGABYTES,
        (
            Drawn("steps", "run", "SQLite", "steps"),
            Drawn("items", "run", "SQLite", "items of a map"),
            Drawn("children", "child runs", "SQLite", "child runs"),
        ),
    ),
    Chart(
        "runs-sqlite",
        "A store of many runs, SQLite",
        "how long each command takes, the start of Python in it; best of a few",
        "runs in the store",
        "seconds",
        SECONDS,
        _all("runs", "SQLite", *_OF_RUNS),
    ),
    Chart(
        "runs-postgresql",
        "A store of many runs, PostgreSQL",
        "how long each command takes, the start of Python in it; best of a few",
        "runs in the store",
        "seconds",
        SECONDS,
        _all("runs", "PostgreSQL", *_OF_RUNS),
    ),
    Chart(
        "log",
        "A run with a long log",
        "one step that a loop visits again and again, seven events a visit; SQLite",
        "events in the log",
        "seconds",
        SECONDS,
        _all("log", "SQLite", "resume", "show", "events", "explain", "replay --verify"),
    ),
    Chart(
        "workers",
        "Several workers on one PostgreSQL",
        "200 runs of four steps, all there at once; server and workers share one machine",
        "workers, with room for 4 steps each",
        "rate",
        RATE,
        _all("workers", "PostgreSQL", "no-op steps", "steps of 50 ms"),
    ),
    Chart(
        "waiting",
        "Beside many runs that wait",
        "each for a time that is a day away",
        "runs that wait",
        "seconds",
        SECONDS,
        (
            Drawn("waiting", "run", "SQLite", "run, SQLite"),
            Drawn("waiting", "list", "SQLite", "list, SQLite"),
            Drawn("waiting", "run", "PostgreSQL", "run, PostgreSQL"),
            Drawn("waiting", "list", "PostgreSQL", "list, PostgreSQL"),
        ),
    ),
)


def drawn(points: Sequence[Point], one: Chart) -> str | None:
    """The text of a chart's file; None where nothing of it was measured."""
    lines = [_named(points, each, one.value) for each in one.lines]
    lines = [each for each in lines if each.points]
    return chart(one.title, one.note, lines, Axis(one.along, count_said), one.axis) if lines else None


def write_charts(points: Sequence[Point], folder: Path) -> None:
    """Every chart of which something was measured, as a file of the folder."""
    folder.mkdir(exist_ok=True)
    for one in CHARTS:
        text = drawn(points, one)
        if text is not None:
            (folder / f"{one.file}.svg").write_text(text)


def _named(points: Sequence[Point], one: Drawn, value: str) -> Line:
    found = line(points, one.group, one.series, one.store, value)
    return Line(one.name, found.points)
