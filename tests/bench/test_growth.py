"""The arithmetic of the bench of growth: lines from points, how they grow, tables, and the section of a page."""

from __future__ import annotations

import pytest
from bench.growing.charts import CHARTS, drawn
from bench.growing.figures import Line, Point, from_json, line, series_of, stores_of, to_json
from bench.growing.tables import TITLES, growth_said, markdown, write_section

ABOUT = {"command": "python bench/growth.py", "machine": {"system": "Linux, 2 cores", "python": "3.11"}, "minutes": 1.5}


def point(size: int, seconds: float, series: str = "list", group: str = "runs", **values: object) -> Point:
    return Point(group, series, "SQLite", size, seconds, seconds / 2, 30.0, **values)  # type: ignore[arg-type]


def test_a_line_goes_from_the_smallest_to_the_largest_whatever_the_order_of_measuring():
    found = line(
        [point(100, 3.0), point(1, 1.0), point(10, 2.0), point(5, 9.0, "show")], "runs", "list", "SQLite", "cpu"
    )

    assert found == Line("list", ((1.0, 0.5), (10.0, 1.0), (100.0, 1.5)))


def test_a_point_without_the_value_is_no_part_of_its_line():
    found = line([point(1, 1.0), point(10, 2.0, rate=5.0)], "runs", "list", "SQLite", "rate")

    assert found.points == ((10.0, 5.0),)


@pytest.mark.parametrize(
    ("points", "growth", "slope"),
    [
        (((1.0, 2.0), (10.0, 2.0)), 1.0, 0.0),  # flat
        (((1.0, 1.0), (10.0, 10.0), (100.0, 100.0)), 100.0, 1.0),  # in proportion
        (((1.0, 1.0), (10.0, 100.0)), 100.0, 2.0),  # with the square
        (((1.0, 1.0), (10.0, 1.0), (100.0, 10.0)), 10.0, 1.0),  # the slope is that of its end, where it matters
        (((1.0, 3.0),), 1.0, 0.0),  # one point says nothing
    ],
)
def test_how_a_line_grows(points, growth, slope):
    grown = Line("x", points)

    assert grown.growth == pytest.approx(growth)
    assert grown.slope == pytest.approx(slope)


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        (((1.0, 0.20), (1e5, 0.25)), "flat"),
        (((1.0, 0.2), (10.0, 2.0)), "10.0x, size^1.0"),
        (((1.0, 0.2), (1e5, 0.5)), "2.5x, size^0.1"),  # slow, but more than twice as much is not flat
        (((1.0, 2.0), (2.0, 1.0)), "0.5x, size^-1.0"),  # less
        (((1.0, 0.2),), ""),
    ],
)
def test_growth_is_told_in_a_word_or_as_a_power(points, expected):
    assert growth_said(Line("x", points)) == expected


def test_what_was_measured_can_be_read_again():
    points = [point(1, 0.25), point(10, 0.5, rate=20.0)]

    assert from_json(to_json(ABOUT, points)) == (ABOUT, points)


def test_stores_and_series_are_in_the_order_of_measuring():
    points = [point(1, 1.0, "show"), point(1, 1.0, "list"), point(10, 1.0, "show"), point(1, 1.0, group="log")]

    assert series_of(points, "runs", "SQLite") == ["show", "list"]
    assert stores_of(points, "runs") == ["SQLite"]
    assert stores_of(points, "waiting") == []


def test_the_tables_say_seconds_processor_time_rates_and_growth():
    points = [point(1_000, 2.0, "run", "steps", rate=500.0), point(10_000, 20.0, "run", "steps", rate=500.0)]

    told = markdown(ABOUT, [*points, point(1_000, 0.2, "events | head", "steps")])

    assert told.splitlines()[-6:] == [
        "| SQLite, steps | 1,000 | 10,000 | grows |",
        "|---|---:|---:|---:|",
        "| run, a second | 500 | 500 | flat |",
        "| run, s | 2.00 (1.00) | 20.00 (10.00) | 10.0x, size^1.0 |",
        "| run, MB | 30 | 30 | flat |",
        "| events \\| head, s | 0.20 (0.10) |  |  |",
    ]


def test_the_section_of_a_page_is_replaced_and_nothing_else(tmp_path):
    page = tmp_path / "benchmarks.md"
    page.write_text("before\n<!-- growth: begin -->\nold\n<!-- growth: end -->\nafter\n")

    write_section(page, ABOUT, [point(1, 0.2)])
    once = page.read_text()
    write_section(page, ABOUT, [point(1, 0.2)])

    assert once.startswith("before\n<!-- growth: begin -->\n\n`python bench/growth.py` on Linux, 2 cores")
    assert once.endswith("\n\n<!-- growth: end -->\nafter\n")
    assert "old" not in once
    assert page.read_text() == once


def test_a_page_without_a_place_for_it_is_left_as_it_is(tmp_path):
    page = tmp_path / "benchmarks.md"
    page.write_text("no marks\n")

    with pytest.raises(SystemExit) as refusal:
        write_section(page, ABOUT, [])

    assert str(refusal.value) == (
        f"{page} has no place for it: a line '<!-- growth: begin -->', and below it one '<!-- growth: end -->'"
    )
    assert page.read_text() == "no marks\n"


def test_every_chart_is_of_a_group_that_there_is_and_is_drawn_only_where_it_was_measured():
    groups = {one.group for chart in CHARTS for one in chart.lines}

    assert groups <= TITLES.keys()
    assert [chart.file for chart in CHARTS if drawn([point(1, 0.2), point(10, 0.3)], chart)] == ["runs-sqlite"]
