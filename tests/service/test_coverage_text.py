"""Coverage on a terminal: fits its width, reads without colour, and says what it leaves out."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.coverage_examples import KINDS, LARGE, NIGHTLY, SOURCE, cell, coverage

from mulligan.analysis.coverage.figures import count_figures
from mulligan.analysis.coverage.results import Coverage, Finding
from mulligan.history.story import StoryLine
from mulligan.service.rendering.console.coverage_text import FINDINGS_MAX, case_story_lines, coverage_lines

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def shown(found: Coverage, *, width: int = 80, is_coloured: bool = False, shows_all: bool = False) -> str:
    lines = coverage_lines(
        found,
        count_figures(found),
        file="nightly.yaml",
        source=SOURCE,
        width=width,
        is_coloured=is_coloured,
        shows_all=shows_all,
    )
    return "\n".join(lines)


def test_a_narrow_terminal_shows_signs_below_stairs_of_names():
    headline, _, rest = shown(NIGHTLY).partition("\n\n")
    assert (
        rest
        == """\
STEP                 ┌ exit 11
                     │  ┌ EXIT_NONZERO
                     │  │  ┌ TIMEOUT
                     │  │  │  ┌ OUT_OF_MEMORY
                     │  │  │  │  ┌ WORKER_LOST
                     │  │  │  │  │  ┌ handler
                     │  │  │  │  │  │  ┌ remediation
                     │  │  │  │  │  │  │  ┌ cancel
fetch                ✓  ✓✗ ✓✗ ✗  ✓  ·  ·  ■
transform_the_table  ·  ✗  ✓✗ ✗  ✓  ·  ·  ■
load                 ·  ?  ?  ?  ✓  ?  →  ■
report               ·  ~  ~  ~  ✓  ·  ·  ○

✓ recovered   → handled   ~ allowed   ? waits for a person   ✗ fails the run
✓✗ recovered if it happens once, fails the run if it goes on
■ stops everything   ○ accepted in the file   · cannot happen here

warning[coverage.unhandled]: nightly.yaml:3:11: nothing deals with TIMEOUT of 'fetch', and 3 steps need it
  3 |   - step: fetch
    |           ^^^^^ add a retry rule, a handler or a failure edge

worst case: 5m20s of delays and timeouts, if the run is cancelled while 'fetch' runs
69 cases played; no command was run
the story of a cell: mulligan coverage nightly.yaml --step fetch --failure EXIT_NONZERO
coverage: 43%"""
    )
    assert headline.startswith("nightly: 9 of 23 failures are dealt with; 4 wait for a person; ")


def test_a_wide_terminal_shows_words_below_names():
    lines = shown(NIGHTLY, width=200).splitlines()

    assert lines[2].startswith(
        "STEP                 exit 11       EXIT_NONZERO  TIMEOUT     OUT_OF_MEMORY  WORKER_LOST "
    )
    assert lines[3].startswith(
        "fetch                ✓  recovered  ✓✗ fails      ✓✗ fails    ✗  fails       ✓  recovered"
    )


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("found", [NIGHTLY, LARGE], ids=["small", "large"])
def test_no_line_of_the_table_is_wider_than_the_terminal(found: Coverage, width: int):
    table = shown(found, width=width).partition("\n\n")[2].partition("\n\n")[0]

    assert max(map(len, table.splitlines())) <= max(
        width, 2 + max(map(len, (*found.steps, "sim_1 and 996 like it"))) + 20
    )


def test_many_failures_on_a_narrow_terminal_make_several_blocks():
    table = shown(NIGHTLY, width=50)

    assert [line.split()[0] for line in table.splitlines() if line.startswith(("STEP", "fetch"))] == [
        "STEP",
        "fetch",
        "STEP",
        "fetch",
    ]


def test_colours_are_added_and_nothing_else():
    assert re.sub(r"\x1b\[\d+m", "", shown(NIGHTLY, is_coloured=True)) == shown(NIGHTLY)
    assert "\x1b[31m✗\x1b[0m" in shown(NIGHTLY, is_coloured=True)


def test_a_thousand_steps_are_a_few_rows_and_all_of_them_on_request():
    assert len(shown(LARGE).splitlines()) < 20
    assert "not shown: 3 kinds of failures that are dealt with, 1 step without a hole; --all shows everything" in shown(
        LARGE
    )
    assert "not shown" not in shown(LARGE, shows_all=True)


def test_many_findings_are_cut_and_counted():
    many = coverage({"a": "f - - - - - - -"}, *(Finding(f"coverage.c{n}", f"message {n}") for n in range(25)))

    assert shown(many).count("warning[") == FINDINGS_MAX
    assert "and 15 further findings; --all shows them" in shown(many)
    assert shown(many, shows_all=True).count("warning[") == 25


def test_a_finding_that_was_accepted_is_not_shown():
    found = coverage({"a": "r - - - - - - -"}, Finding("coverage.x", "meant so", accepted="the vendor says so"))

    assert "warning[" not in shown(found)


def test_a_hostile_name_does_not_reach_the_terminal():
    found = coverage({"a\x1b[2J": "f - - - - - - -"}, Finding("coverage.x", "see \x1b[2J", step="a"))

    assert "\x1b[2J" not in shown(found, is_coloured=True)


def test_a_story_has_times_from_its_start_and_says_how_it_ends():
    story = [
        StoryLine(T0, "fetch", "failed with TIMEOUT", "bad"),
        StoryLine(T0 + timedelta(seconds=90), "", "the run failed (4 steps)", "bad"),
    ]

    assert list(case_story_lines(cell("fetch", "TIMEOUT", "rf").cases[-1], KINDS[2], story)) == [
        "'fetch' fails with TIMEOUT every time",
        "   +0s  fetch  failed with TIMEOUT",
        "  +90s  end    the run failed (4 steps)",
        "the run failed: nothing dealt with it; 4 attempts, up to 40s",
    ]
