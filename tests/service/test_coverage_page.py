"""Coverage as one HTML page: complete in itself, bounded, and safe to open."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from tests.support.coverage_examples import LARGE, NIGHTLY, coverage

from mulligan.analysis.coverage.results import Case, Finding
from mulligan.history.story import StoryLine
from mulligan.service.rendering.page.coverage import LINES_MAX, STORIES_MAX, render_coverage_page

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def story_of(case: Case) -> Sequence[StoryLine]:
    return [StoryLine(T0, case.step, f"failed with {case.failure}", "bad")]


def page(found=NIGHTLY, story_of=story_of) -> str:
    return render_coverage_page(found, story_of, file="nightly.yaml", made_by="mulligan")


def test_every_cell_leads_to_its_story_and_back():
    text = page()

    links = re.findall(r'href="#(story-\d+)" id="(cell-\d+)"', text)
    assert len(links) == len(NIGHTLY.cells)
    assert all(f'id="{story}"' in text and f'href="#{cell}"' in text for story, cell in links)


def test_a_cell_says_in_words_what_its_colour_says():
    assert 'aria-label="fetch, TIMEOUT: recovered if it happens once, fails the run if it goes on">✓✗</a>' in page()


def test_it_loads_nothing_and_runs_nothing():
    text = page()

    assert "default-src &#x27;none&#x27;" in text
    assert "<script" not in text
    assert not re.findall(r"https?://", text)


def test_what_a_workflow_says_stays_text():
    hostile = "<script>alert(1)</script>"
    found = coverage({hostile: "f - - - - - - -"}, Finding("coverage.x", hostile, hint=hostile))

    assert hostile not in page(found, lambda case: [StoryLine(T0, case.step, hostile)])


def test_a_large_table_has_the_stories_of_what_is_wrong_and_says_so():
    rows = {f"s{number}": f"r r r r r r r {'f' if number < 30 else 'r'}" for number in range(60)}
    rows |= {f"t{number}": "r rf - p r a h f" for number in range(60)}
    # No two steps are alike.
    kinds = [*"rhapfs"]
    rows = {name: f"{kinds[n % 6]} {kinds[n // 6 % 6]} {kinds[n // 36 % 6]} r r r r r" for n, name in enumerate(rows)}
    found = coverage(rows)

    text = page(found)

    assert text.count('<aside class="case"') == STORIES_MAX
    assert f"{STORIES_MAX} of 960 cells have their story here, those that are not dealt with first" in text
    bad = [cell for cell in found.cells if cell.verdict in ("parked", "fails", "stops")]
    assert all(f"{cell.step}, {cell.failure}: " in text for cell in bad)


def test_steps_that_behave_alike_are_one_row():
    text = page(LARGE)

    assert "sim_1 and 996 like it" in text
    assert len(text) < 100_000


def test_a_long_story_is_cut_in_its_middle():
    text = page(coverage({"a": "f - - - - - - -"}), lambda case: [StoryLine(T0, "a", f"line {n}.") for n in range(200)])

    assert "line 0." in text
    assert "line 199." in text
    assert f"{200 - LINES_MAX:,} lines are left out" in text
