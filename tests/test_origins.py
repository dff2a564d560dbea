"""docs/project/origins.md is true: its tests exist, its points are numbered, and it lists every test of an origin."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "project" / "origins.md"
SYSTEMS = {"NoETL": "N", "Alphred": "A", "Torc": "T", "Prodigy": "P", "NL2SQL": "S", "NL2SQL as an application": "Q"}
PARTS = ("the other faces",)

_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_NAMED = re.compile(r"`((?:packages/\w+/)?tests/[\w/]+\.py)::(\w+)(?:\[[^`]*\])?`")
_TO_COME = re.compile(r"comes with (.+)$")
_POINTS = re.compile(r"^([A-Z]\d+(?:, [A-Z]\d+)*): ")


class Row(NamedTuple):
    """A line of a table: a point of a system, and the tests that show it."""

    system: str
    number: str
    point: str
    shown_by: str

    @property
    def tests(self) -> list[tuple[str, str]]:
        return _NAMED.findall(self.shown_by)


def read(page: str) -> list[Row]:
    """The rows of all tables, in the order of the page."""
    _, *parts = _HEADING.split(page)
    return [row for system, text in zip(parts[::2], parts[1::2], strict=True) for row in _rows(system, text)]


def _rows(system: str, text: str) -> list[Row]:
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if re.match(r"\| [A-Z]\d+ \|", line)]
    return [Row(system, number, point, shown_by) for number, point, _, _, shown_by in lines]


ROWS = read(PAGE.read_text(encoding="utf-8"))


@cache
def found_in(file: Path) -> dict[str, str]:
    """The tests of a file, with their docstrings."""
    functions = [node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)]
    return {each.name: ast.get_docstring(each) or "" for each in functions if each.name.startswith("test_")}


def of_the_origins() -> list[tuple[str, str]]:
    files = sorted((ROOT / "tests" / "core").glob("test_origins_*.py"))
    return [(file.relative_to(ROOT).as_posix(), name) for file in files for name in found_in(file)]


def test_every_system_has_a_table_and_its_points_are_numbered_one_after_the_other() -> None:
    counts = Counter(row.system for row in ROWS)

    numbers = [f"{letter}{n}" for system, letter in SYSTEMS.items() for n in range(1, counts[system] + 1)]

    assert [row.number for row in ROWS] == numbers
    assert counts.keys() == SYSTEMS.keys()


def test_no_line_of_a_table_is_overlooked() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]

    heads = [line for line in lines if line.startswith(("| no. ", "|---"))]

    assert len(lines) == len(ROWS) + len(heads)


def test_every_test_that_is_named_exists() -> None:
    missing = [(row.number, name) for row in ROWS for file, name in row.tests if name not in found_in(ROOT / file)]

    assert missing == []
    assert [row.number for row in ROWS if row.shown_by.count("::") != len(row.tests)] == []


def test_every_point_is_shown_or_says_what_it_waits_for() -> None:
    waiting = {row.number: to_come[1] for row in ROWS if (to_come := _TO_COME.search(row.shown_by))}

    assert {
        parts for parts in waiting.values() if not all(part.startswith(PARTS) for part in parts.split("; "))
    } == set()
    others = [row for row in ROWS if not row.tests and row.number not in waiting]
    assert {row.shown_by for row in others} <= {"left out"}


def test_a_test_of_an_origin_names_the_points_that_name_it() -> None:
    said = {each: _POINTS.match(found_in(ROOT / each[0])[each[1]]) for each in of_the_origins()}

    named = {each: ", ".join(row.number for row in ROWS if each in row.tests) for each in said}

    assert {each: points and points[1] for each, points in said.items()} == named


def test_nothing_is_claimed_twice_in_other_words() -> None:
    """Two points of one system that are shown by the same tests are one point."""
    points = Counter(row.point.casefold() for row in ROWS)
    claims = Counter((row.system, frozenset(row.tests)) for row in ROWS if row.tests)

    assert [point for point, times in points.items() if times > 1] == []
    assert [claim for claim, times in claims.items() if times > 1] == []
    assert [row.number for row in ROWS if len(set(row.tests)) < len(row.tests)] == []


def test_a_claim_that_is_not_true_would_be_found() -> None:
    line = (
        "| N1 | a point | somewhere | the same | `tests/test_origins.py::test_nothing[a-1]`<br>the rest comes with x |"
    )

    row = read(f"intro\n## NoETL\n\n| no. | point |\n|---|---|\n{line}\n")[0]

    assert (row.number, row.tests) == ("N1", [("tests/test_origins.py", "test_nothing")])
    assert "test_nothing" not in found_in(ROOT / "tests/test_origins.py")
