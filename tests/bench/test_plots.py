"""The charts of the bench: marks in words, lines where they belong, names that can be read, always the same text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as xml
from itertools import pairwise

import pytest
from bench.growing.figures import Line
from bench.growing.plots import (
    HEIGHT,
    LABEL_APART,
    WIDTH,
    Axis,
    Span,
    apart,
    chart,
    count_said,
    marks,
    megabytes_said,
    rate_said,
    seconds_said,
    size_marks,
    span,
)

SVG = "{http://www.w3.org/2000/svg}"
FLAT = Line("list", ((1.0, 0.2), (10.0, 0.2), (100.0, 0.2)))
STEEP = Line("stats", ((1.0, 0.2), (10.0, 2.0), (100.0, 20.0)))


def drawn(*lines: Line) -> xml.Element:
    return xml.fromstring(chart("Growth", "a note", lines, Axis("runs", count_said), Axis("", seconds_said)))


def texts(picture: xml.Element) -> list[str]:
    return [element.text or "" for element in picture.iter(f"{SVG}text")]


def way(picture: xml.Element, number: int) -> list[tuple[float, float]]:
    points = list(picture.iter(f"{SVG}polyline"))[number].attrib["points"]
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in points.split())]


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ([0.2, 20.0], Span(0.2, 20.0)),  # on marks already
        ([0.3, 15.0], Span(0.2, 20.0)),  # between marks
        ([0.3, 0.3], Span(0.1, 1.0)),  # flat: still a decade, so that a percent is no mountain
        ([1.0, 1e6], Span(1.0, 1e6)),  # long
    ],
)
def test_an_axis_has_room_for_all_its_figures_and_shows_a_decade_at_least(figures, expected):
    assert span(figures) == expected


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (Span(0.2, 20.0), [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0]),  # short: 1, 2, 5
        (Span(1.0, 1e4), [1.0, 10.0, 100.0, 1e3, 1e4]),  # long: the decades
        (Span(2.0, 5e4), [10.0, 100.0, 1e3, 1e4]),  # its ends are no decades
    ],
)
def test_the_marks_of_an_axis_are_round_figures_within_it(shown, expected):
    assert marks(shown) == expected


def test_sizes_are_marked_by_powers_of_ten_or_all_where_they_are_near_each_other():
    assert size_marks([10, 100, 5_000, 10_000]) == [10, 100, 10_000]
    assert size_marks([1, 2, 4, 8]) == [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("say", "figure", "expected"),
    [
        (seconds_said, 0.005, "5 ms"),
        (seconds_said, 0.1, "0.1 s"),
        (seconds_said, 20.0, "20 s"),
        (count_said, 1.0, "1"),
        (count_said, 100_000.0, "100,000"),
        (count_said, 1e6, "1 million"),
        (count_said, 0.5, "0.5"),
        (megabytes_said, 50.0, "50 MB"),
        (megabytes_said, 2000.0, "2 GB"),
        (rate_said, 2000.0, "2,000/s"),
    ],
)
def test_marks_are_told_in_words(say, figure, expected):
    assert say(figure) == expected


def test_a_flat_line_is_level_and_a_steep_one_climbs_evenly_from_left_to_right():
    picture = drawn(FLAT, STEEP)

    (left, low), (middle, half), (right, high) = way(picture, 1)
    assert len({y for _, y in way(picture, 0)}) == 1
    assert middle - left == pytest.approx(right - middle, abs=0.2)
    assert low - half == pytest.approx(half - high, abs=0.2)
    assert low > half > high


def test_every_line_has_its_name_and_every_mark_its_words():
    said = texts(drawn(FLAT, STEEP))

    assert said[:2] == ["Growth", "a note"]
    assert {"list", "stats", "runs", "1", "10", "100", "0.2 s", "20 s"} <= set(said)


def test_everything_is_within_the_picture():
    picture = drawn(FLAT, STEEP, Line("one", ((10.0, 3.0),)))

    for element in picture.iter():
        for name, most in (("x", WIDTH), ("x1", WIDTH), ("cx", WIDTH), ("y", HEIGHT), ("y1", HEIGHT), ("cy", HEIGHT)):
            assert 0 <= float(element.get(name, "0")) <= most


def test_lines_that_end_at_the_same_height_have_names_that_can_be_read():
    same = [Line(f"verb {number}", FLAT.points) for number in range(9)]

    found = [element for element in drawn(*same).iter(f"{SVG}text") if "name" in element.attrib["class"]]

    heights = sorted(float(element.attrib["y"]) for element in found)
    assert len(heights) == 9
    assert all(lower - upper >= LABEL_APART - 0.11 for upper, lower in pairwise(heights))


@pytest.mark.parametrize(
    ("heights", "expected"),
    [
        ([10.0, 50.0], [10.0, 50.0]),  # far enough: as they are
        ([50.0, 50.0], [50.0, 65.0]),  # the same: the second below
        ([52.0, 50.0], [65.0, 50.0]),  # in their own order, whatever the order of the lines
        ([99.0, 100.0], [85.0, 100.0]),  # at the bottom: upwards
        ([], []),
    ],
)
def test_names_are_moved_as_little_as_it_takes(heights, expected):
    assert apart(heights, 15.0, 0.0, 100.0) == expected


def test_the_same_lines_give_the_same_text():
    pictures = {chart("G", "n", [FLAT, STEEP], Axis("x", count_said), Axis("", seconds_said)) for _ in range(3)}

    assert len(pictures) == 1


def test_it_can_be_read_on_light_pages_and_on_dark_ones_and_by_who_cannot_see_it():
    picture = chart("Growth", "n", [STEEP], Axis("x", count_said), Axis("", seconds_said))

    assert "@media(prefers-color-scheme:dark)" in picture
    assert 'aria-label="Growth: stats from 0.2 s to 20 s"' in picture


def test_what_a_line_is_called_stays_text():
    picture = drawn(Line("events | head <&>", FLAT.points))

    assert "events | head <&>" in texts(picture)
    assert not re.search(r"head <", chart("t", "n", [Line("head <", FLAT.points)], Axis("", str), Axis("", str)))
