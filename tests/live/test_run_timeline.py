"""When the steps of a run ran, and how all of them stand: in parts."""

from __future__ import annotations

import pytest

from mulligan.core.model import events as e
from mulligan.service.runs.views.run_timeline import CELLS_MAX, Timeline, Timelines, make_mosaic, mosaic_of
from mulligan.testing.history import History, handler, retry, step, workflow


class _Log:
    """A reader of one run whose log is in memory."""

    def __init__(self, run: History) -> None:
        self._run = run
        self.store = self

    def record(self, run_id: int) -> object:
        return self._run.log[-1]

    def log(self, run_id: int, after: int, limit: int) -> list[e.Entry]:
        return [entry for entry in self._run.log if entry.seq > after][:limit]


def timeline(run: History, **asked: object) -> Timeline:
    return Timelines(_Log(run)).read(1, run.state, now=run.clock, **asked)  # type: ignore[arg-type]


def spans(found: Timeline, name: str) -> list[tuple[str, str, int]]:
    (row,) = (row for row in found.rows if row.name == name)
    return [(one.kind, one.outcome, one.attempt) for one in row.spans]


def test_attempts_retries_and_delays_are_told_apart() -> None:
    run = History(workflow(step("fetch", rules=retry(2, delay=5.0)))).start().started("fetch")
    run.wait(2).fail("fetch").wait(6).started("fetch").wait(1)

    found = timeline(run)

    assert spans(found, "fetch") == [
        ("own", "failed", 1),
        ("delay", "queued", 0),
        ("queue", "queued", 2),
        ("own", "running", 2),
    ]
    own, delay, _, again = found.rows[0].spans
    assert (own.since, own.until) == (0, 2_000)
    assert (delay.since, delay.until) == (2_000, 7_000)
    assert again.until is None


def test_rows_are_in_the_order_in_which_steps_started_and_come_in_parts() -> None:
    run = History(workflow(step("a"), step("b", needs=["a"]), step("c", needs=["b"])))
    run.start().ok("a").ok("b")

    whole, part = timeline(run), timeline(run, first=1, limit=1)

    assert [row.name for row in whole.rows] == ["a", "b", "c"]
    assert [row.name for row in part.rows] == ["b"]
    assert part.total == 3
    assert [row.name for row in timeline(run, hide_completed=True).rows] == ["c"]


def test_a_long_time_in_which_nothing_runs_is_folded() -> None:
    run = History(workflow(step("a"), step("b", needs=["a"]))).start().started("a")
    run.wait(2).ok("a").wait(3600).started("b").wait(1).ok("b")

    found = timeline(run)

    assert found.folds == [(2_000, 3_602_000)]
    assert found.length == 3_603_000
    assert found.has_ended


def test_a_row_with_many_spans_is_drawn_in_pieces_with_their_worst_outcome() -> None:
    run = History(workflow(step("a", rules=retry(400)))).start()
    for _ in range(300):
        run.started("a").wait(1).fail("a").wait(0)

    (row,) = timeline(run).rows

    assert row.span_count > 300
    assert len(row.spans) <= 121
    assert {span.outcome for span in row.spans} <= {"failed", "queued"}


def test_a_mosaic_has_a_letter_for_each_step() -> None:
    run = History(workflow(step("a"), step("b"), step("c", needs=["a"])))
    run.start().ok("a").fail("b")

    found = mosaic_of(1, run.state)

    assert found.cells[:2] == "cf"
    assert found.steps_per_cell == 1
    assert found.counts["failed"] == 1


@pytest.mark.parametrize(("rest", "shown"), [("failed", "f"), ("running", "r"), ("waiting", "c")])
def test_a_cell_of_a_large_run_shows_what_needs_attention_or_what_most_are(rest: str, shown: str) -> None:
    statuses = {f"s{number}": "completed" for number in range(CELLS_MAX * 3)} | {"s1": rest}

    found = make_mosaic(1, 9, "running", statuses, ())

    assert found.steps_per_cell == 3
    assert len(found.cells) == CELLS_MAX
    assert found.cells[0] == shown
    assert found.cells[1] == "c"


def test_the_handler_of_a_step_has_spans_of_its_own() -> None:
    run = History(workflow(step("a", on_failure=handler("fix")))).start().started("a").fail("a")
    (place,) = run.queued

    run.started(place)

    assert spans(timeline(run), "a") == [("own", "failed", 1), ("handler", "running", 1)]
