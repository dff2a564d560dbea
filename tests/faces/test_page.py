"""The parts of a page: markup that is escaped, time on a line, charts of few and of many attempts."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.nightly import examples

from mulligan.ports import LogKey
from mulligan.service.home import Home
from mulligan.service.logs.log_ranges import LogRanges
from mulligan.service.rendering.page import render_page
from mulligan.service.rendering.page.axis import Timescale
from mulligan.service.rendering.page.markup import Html, element, escape_text, join_html
from mulligan.service.rendering.page.plots import memory_plot
from mulligan.service.rendering.page.styles import format_elapsed
from mulligan.service.rendering.page.timeline import render_timeline
from mulligan.service.rendering.page.tracks import Bar, draw_density, draw_track
from mulligan.service.runs.stored.attempts import Gap, part_of, unit_of
from mulligan.service.runs.views.report import Report
from mulligan.service.runs.views.report.build import Attempt, StepRow, read_tail
from mulligan.testing.memory.memory_store import MemoryStore

from .pages import Page

T0 = datetime(2026, 1, 1, tzinfo=UTC)
MIB = 1024 * 1024


def after(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def attempt(place: str, since: float, until: float, number: int = 1, **fields: object) -> Attempt:
    told = {"started_at": after(since), "ended_at": after(until), "outcome": "succeeded", **fields}
    return Attempt(place, number, unit_of(place), part_of(place), 1, 1, after(since), **told)


def report(*attempts: Attempt, seconds: float = 10.0, gaps: tuple[Gap, ...] = ()) -> Report:
    steps = dict.fromkeys(one.unit.partition("[")[0] for one in attempts)
    lines = [StepRow(name, "shell", "completed", 1, 1, False, False, 0, 0, 1.0, 1.0, MIB) for name in steps]
    return Report(
        run_id=1,
        workflow="flow",
        description="",
        version="abc",
        file="",
        status="completed",
        degraded=False,
        reason="",
        end_said="",
        round=1,
        by="",
        parent_run_id=None,
        forked_from=None,
        as_of=after(seconds),
        started_at=T0,
        ended_at=after(seconds),
        seconds=seconds,
        counts=None,
        statuses={"completed": len(lines), "failed": 0},
        waits=[],
        visits=[],
        visits_count=0,
        item_failures=[],
        steps=lines,
        attempts=list(attempts),
        gaps=list(gaps),
        children=[],
        children_count=0,
        inputs=[],
        outputs=[],
        events=[],
        events_count=0,
    )


# markup


def test_text_is_escaped_and_markup_is_not_escaped_twice():
    inside = element("b", "<i>")

    assert element("p", inside, " & ", 3) == "<p><b>&lt;i&gt;</b> &amp; 3</p>"
    assert escape_text(Html("<br>")) == "<br>"
    assert join_html(["<", Html("<br>")], ", ") == "&lt;, <br>"


def test_attributes_are_escaped_named_as_html_names_them_and_left_out_where_there_are_none():
    made = element("details", class_='a"b', aria_label="<", open=True, hidden=False, title=None)

    assert made == '<details class="a&quot;b" aria-label="&lt;" open></details>'


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        # a colour and a title of a terminal
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07plain", "plain"),
        # ends of lines and tabs are text
        ("a\tb\nc", "a\tb\nc"),
        # what turns the direction of writing is spelled out
        ("a\u202eb", "a\\u202eb"),
        ("\u2067a\u2069", "\\u2067a\\u2069"),
        # half a character
        ("a\ud800b", "a\\ud800b"),
        # other languages are text, also those from right to left
        ("żółć 日本 שלום", "żółć 日本 שלום"),
    ],
)
def test_what_would_deceive_a_reader_is_taken_out_or_spelled_out(said: str, shown: str):
    assert escape_text(said) == shown


# time


def test_a_moment_has_its_place_on_the_line_and_none_is_beyond_its_ends():
    scale = Timescale(T0, after(10), [(T0, after(10))])

    assert [scale.share(after(at)) for at in (-1, 0, 2.5, 10, 11)] == [0.0, 0.0, 0.25, 1.0, 1.0]
    assert [mark.label for mark in scale.marks()] == ["0", "2s", "4s", "6s", "8s", "10s"]


def test_a_night_in_which_nothing_ran_is_folded_and_said_to_be():
    scale = Timescale(T0, after(36_010), [(T0, after(5)), (after(36_005), after(36_010))])

    assert [mark.label for mark in scale.marks()] == ["0", "2s", "4s", "10h00m idle"]
    assert [mark.is_fold for mark in scale.marks()] == [False, False, False, True]
    assert scale.share(after(5)) == pytest.approx(0.47)
    assert scale.share(after(36_005)) == pytest.approx(0.53)
    assert scale.share(after(18_005)) == pytest.approx(0.5)


def test_a_run_that_took_no_time_has_a_line_all_the_same():
    scale = Timescale(T0, T0, [])

    assert scale.share(T0) == 0.0
    assert scale.marks()[0].label == "0"


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.0, "0ms"), (0.0421, "42ms"), (1.25, "1.2s"), (42.0, "42s"), (3725.0, "1h02m")]
)
def test_a_length_of_time_is_said_in_its_unit(seconds: float, said: str):
    assert format_elapsed(seconds) == said


# charts


def test_a_track_has_a_bar_an_attempt_with_its_words_and_small_ones_are_small():
    bars = [Bar(T0, after(5), "bad", "one <1>"), Bar(after(5), after(5), "good", "two", is_small=True)]

    made = draw_track(bars, [], Timescale(T0, after(10), []), "both")

    assert made == (
        '<svg class="track" height="22" role="img" aria-label="both">'
        '<rect class="bad" x="0.00%" y="4" width="50.00%" height="14" rx="2"><title>one &lt;1&gt;</title></rect>'
        '<rect class="good" x="50.00%" y="8" width="0.40%" height="6" rx="2"><title>two</title></rect>'
        "</svg>"
    )


def test_of_many_bars_the_density_is_shown_failures_at_the_bottom():
    bars = [Bar(T0, after(9.99), "good", ""), Bar(T0, after(9.99), "good", ""), Bar(T0, after(4.99), "bad", "")]

    made = draw_density(bars, Timescale(T0, after(10), []), "three")

    assert made == (
        '<svg class="track dense" height="30" role="img" aria-label="three">'
        '<rect class="bad" y="19.3" height="8.7" x="0.00%" width="50.00%"/>'
        '<rect class="good" y="2.0" height="17.3" x="0.00%" width="50.00%"/>'
        '<rect class="good" y="10.7" height="17.3" x="50.00%" width="50.00%"/>'
        "</svg>"
    )


def test_a_step_has_one_line_with_its_attempts_its_handler_and_the_delay_between():
    made = render_timeline(
        report(
            attempt("fetch", 0, 1, outcome="failed", what="EXIT_NONZERO 7"),
            attempt("fetch.script@1", 1, 2),
            attempt("fetch", 4, 5, number=2),
            gaps=(Gap("fetch", "delay", after(1), after(4)),),
        )
    )

    read = Page(made)
    assert read.problems == []
    assert made.count('class="lane"') == 1
    assert "fetch, attempt 1: failed\nEXIT_NONZERO 7\n1s, started after 0ms (00:00:00 UTC)" in made
    assert "fetch: delay before a retry, 3s" in made
    assert "succeeded failed waiting for a delay small: handlers, scripts and checks" in read.text


def test_an_undo_has_a_line_of_its_own_and_is_no_part_of_the_time_of_its_step():
    made = render_timeline(report(attempt("a", 0, 1), attempt("b", 1, 2), attempt("a.undo@1", 7, 9)))

    lines = re.findall(r'class="name" title="[^"]*">([^<]*)<.*?class="took">([^<]*)<', made, re.DOTALL)
    assert lines == [("a", "1s"), ("b", "1s"), ("undo of a", "2s")]


def test_items_are_called_by_their_values_and_their_numbers_stand_behind():
    found = report(attempt("check[0].0", 0, 1), attempt("check[1].0", 1, 2))
    found.item_names = {"check[0]": "east", "check[1]": "west"}

    made = render_timeline(found)

    assert re.findall(r'title="([^"]*)">([^<]*)</span>', made) == [("check[0]", "east"), ("check[1]", "west")]


def test_items_of_a_map_are_lines_below_their_step_which_opens():
    made = render_timeline(report(*(attempt(f"check[{index}].0", index, index + 1) for index in range(3))))

    assert made.count("<details>") == 1
    assert made.count('class="lane"') == 4
    assert "check 3 items" in Page(made).text


def test_an_attempt_that_runs_now_reaches_to_now_and_one_that_waits_is_a_thin_line():
    running = attempt("one", 2, 0, ended_at=None, outcome="running")
    queued = attempt("one", 3, 0, number=2, started_at=None, ended_at=None, outcome="queued")

    made = render_timeline(report(running, queued))

    assert '<rect class="now" x="20.00%" y="4" width="80.00%"' in made
    assert "one, attempt 2: waiting for a worker" in made


def test_where_nothing_has_run_there_is_no_chart():
    assert render_timeline(report()) == ""
    assert Page(render_page(report())).problems == []


def test_ten_thousand_attempts_are_a_page_of_less_than_ten_megabytes_in_a_screenful_of_lines():
    count = examples(3_000, 10_000)
    found = report(*(attempt(f"step-{number:05}", number / 1000, number / 1000 + 0.01) for number in range(count)))

    made = render_page(found)

    assert len(made) < 1_000 * count
    assert made.count("<details>") == 50


def test_memory_that_was_asked_for_is_shown_with_what_was_used_and_too_much_stands_out():
    given = {"memory": 64 * MIB}
    made = memory_plot(
        report(
            attempt("small", 0, 1, peak_memory=32 * MIB, **given), attempt("large", 0, 1, peak_memory=80 * MIB, **given)
        )
    )

    assert Page(made).text == "32MiB 128MiB small small: at most 32MiB of 64MiB 32MiB of 64MiB large " + (
        "large: at most 80MiB of 64MiB 80MiB of 64MiB"
    )
    assert made.count('class="took over bad"') == 1


# names and logs


@pytest.mark.parametrize(
    ("place", "unit", "part"),
    [
        ("build", "build", "own"),
        ("check[3]", "check[3]", "own"),
        ("check[3].0", "check[3]", "own"),
        ("build.on_failure@2.0", "build", "handler"),
        # a script of a handler's command is the handler's
        ("check[3].1.on_failure@2.0.script@1", "check[3]", "handler"),
        ("build.script@2", "build", "script"),
        ("build.validator@1", "build", "check"),
        ("check.lister@1", "check", "check"),
        ("build.undo@1", "build", "undo"),
    ],
)
def test_a_place_says_whose_it_is_and_what_it_is_to_it(place: str, unit: str, part: str):
    assert (unit_of(place), part_of(place)) == (unit, part)


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"", ("", False)),
        (b"short\n", ("short\n", False)),
        (b"0123456789", ("0123456789", False)),
        # the line that was cut goes, unless it is the only one
        (b"first line\nlast\n", ("last\n", True)),
        (b"x" * 100, ("x" * 10, True)),
        (b"12345678\xff", ("12345678\ufffd", False)),
    ],
)
def test_the_end_of_a_log_is_read_from_a_whole_line_on(content: bytes, shown: tuple[str, bool], tmp_path: Path):
    logs, key = LogRanges(Home(tmp_path), MemoryStore), LogKey(1, "build", 1, "stdout")
    path = Path(logs.path(key))
    path.parent.mkdir(parents=True)
    path.write_bytes(content)

    assert read_tail(logs, key, 10) == shown


def test_a_log_that_is_not_there_has_no_end(tmp_path: Path):
    logs = LogRanges(Home(tmp_path), MemoryStore)

    assert read_tail(logs, LogKey(1, "build", 1, "stdout"), 10) == ("", False)
