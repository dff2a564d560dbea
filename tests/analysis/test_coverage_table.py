"""What people see of coverage, decided without any face: the figures, the rows and columns, the words."""

from __future__ import annotations

import pytest
from tests.support.coverage_examples import LARGE, NIGHTLY, cell, coverage

from mulligan.analysis.coverage.figures import count_figures, describe_figures
from mulligan.analysis.coverage.results import FailureKind
from mulligan.analysis.coverage.table import Mark, arrange_table, steps_label
from mulligan.analysis.coverage.words import describe_case, describe_failure_of, fold_skipped, meaning_of, sign_of
from mulligan.analysis.playing.player import START
from mulligan.history.story import StoryLine


def test_the_figures_count_cells_by_their_worst_case():
    figures = count_figures(NIGHTLY)

    assert figures.verdicts == {"recovered": 5, "handled": 1, "allowed": 3, "parked": 4, "fails": 6, "stops": 4}
    assert (figures.total, figures.dealt_with, figures.accepted, figures.percent) == (23, 9, 1, 43)
    assert figures.slowest is not None
    assert (figures.slowest.step, figures.slowest.failure, figures.worst_seconds) == ("fetch", "cancel", 320.0)


def test_the_sentence_says_what_is_dealt_with_and_what_is_not():
    assert describe_figures(count_figures(NIGHTLY)) == (
        "9 of 23 failures are dealt with; 4 wait for a person; 6 fail the run; 4 stop everything "
        "(1 of these 14 is accepted)"
    )
    assert describe_figures(count_figures(coverage({"a": "- r - - - - - -"}))) == "1 of 1 failure is dealt with"
    assert describe_figures(count_figures(coverage({"a": "- r (f) - - - - -"}))) == (
        "1 of 2 failures are dealt with; 1 fails the run (accepted)"
    )
    assert describe_figures(count_figures(coverage({}))) == "there is no step that could fail"


@pytest.mark.parametrize(
    ("row", "percent_min", "is_reached"),
    [
        ("r r r r - - - -", 100, True),
        ("r r f - - - - -", 66, True),
        ("r r f - - - - -", 67, False),
        ("r r (f) - - - - -", 100, True),
        ("f - - - - - - -", 0, True),
    ],
)
def test_what_is_accepted_counts_as_dealt_with(row: str, percent_min: int, is_reached: bool):
    assert count_figures(coverage({"a": row})).reaches(percent_min) is is_reached


def test_nothing_that_could_fail_is_full_coverage():
    figures = count_figures(coverage({}))

    assert (figures.percent, figures.reaches(100)) == (100, True)


def test_a_percentage_is_never_rounded_up():
    rows = {f"s{number}": "r r r r r r r r" for number in range(99)} | {"last": "r r r r r r r f"}

    assert count_figures(coverage(rows)).percent == 99


def test_a_short_table_has_every_step_in_the_order_of_the_file():
    table = arrange_table(NIGHTLY)

    assert [row.steps for row in table.rows] == [("fetch",), ("transform_the_table",), ("load",), ("report",)]
    assert table.is_complete
    assert "handler" not in table.rows[0].marks


def test_a_long_table_has_what_is_wrong_first_and_steps_that_behave_alike_once():
    table = arrange_table(LARGE)

    assert [steps_label(row.steps) for row in table.rows] == ["sim_1 and 996 like it", "gather", "publish"]
    assert [kind.name for kind in table.columns] == ["EXIT_NONZERO", "TIMEOUT", "OUT_OF_MEMORY", "handler", "cancel"]
    assert (table.hidden_steps, table.hidden_failures) == (1, 3)


def test_all_of_a_long_table_can_be_shown():
    table = arrange_table(LARGE, shows_all=True)

    assert sum(len(row.steps) for row in table.rows) == 1000
    assert table.is_complete
    assert table.rows[-1].steps == ("check",)


def test_a_long_table_without_a_hole_shows_one_row():
    table = arrange_table(coverage({f"s{number}": "r r r r - - - -" for number in range(100)}))

    assert [steps_label(row.steps) for row in table.rows] == ["s0 and 99 like it"]
    assert table.is_complete


def test_a_sign_says_when_a_single_failure_ends_better_than_one_that_goes_on():
    mark = arrange_table(NIGHTLY).rows[0].marks["TIMEOUT"]

    assert mark == Mark("fails", "recovered")
    assert sign_of(mark) == "✓✗"
    assert meaning_of(mark) == "recovered if it happens once, fails the run if it goes on"


def test_an_accepted_failure_has_a_sign_of_its_own():
    mark = arrange_table(NIGHTLY).rows[3].marks["cancel"]

    assert (sign_of(mark), mark.is_open) == ("○", False)


def test_a_failure_and_its_case_have_words():
    failed = cell("fetch", "TIMEOUT", "rf").cases[-1]

    assert describe_failure_of("fetch", FailureKind("TIMEOUT", "TIMEOUT"), "always") == (
        "'fetch' fails with TIMEOUT every time"
    )
    assert describe_case(failed) == "the run failed: nothing dealt with it; 4 attempts, up to 40s"


def test_rare_failures_share_a_column_of_a_long_table():
    rows = {f"s{number}": "f f - - - - - -" if number % 10 else "f - p f r - - -" for number in range(100)}

    table = arrange_table(coverage(rows), columns_max=2)

    assert [kind.name for kind in table.columns] == ["exit 11", "other failures"]
    assert set(table.folded) == {"EXIT_NONZERO", "TIMEOUT", "OUT_OF_MEMORY", "WORKER_LOST"}
    assert [steps_label(row.steps) for row in table.rows] == ["s0 and 99 like it"]
    assert table.rows[0].marks["other failures"] == Mark("fails", "fails")


def test_many_skipped_steps_are_one_line_of_a_story():
    story = [StoryLine(START, f"s{number}", f"skipped: 's{number - 1}' did not complete") for number in range(9)]
    story = [StoryLine(START, "a", "failed", "bad"), *story, StoryLine(START, "", "the run failed", "bad")]

    assert [line.text for line in fold_skipped(story)] == [
        "failed",
        "skipped: 's-1' did not complete",
        "skipped: 's0' did not complete",
        "skipped: 's1' did not complete",
        "and 6 more steps are skipped",
        "the run failed",
    ]
