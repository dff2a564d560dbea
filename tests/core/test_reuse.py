"""Which steps may reuse an earlier result, how it is found, and when."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mulligan.core.deciding.rounds.rounds import kept_files, plan_round, rerun_reasons
from mulligan.core.effects.fingerprints import FINGERPRINT_CHARS, fingerprint, result_of
from mulligan.core.effects.snapshot import changes
from mulligan.core.effects.tasks import Task, make_task
from mulligan.core.model import reports as r
from mulligan.core.model.file_records import FileRecord, StaleFile, last_writers
from mulligan.core.model.outcome import Outcome
from mulligan.core.turn import turn
from mulligan.testing.history import History, command, edge, handler, retry, step, workflow

from .writing import run_of

PRINT = "f" * FINGERPRINT_CHARS


def started(*steps: Any, **fields: Any) -> History:
    return History(workflow(*steps)).start(**fields)


def wanted(run: History, place: str = "a") -> Task:
    return make_task(run.state, place)


def ended(run: History, place: str = "a", **fields: Any) -> r.TaskEnded:
    return r.TaskEnded(run.clock, place, run[place].attempt, fingerprint=PRINT, **fields)


def tag_after(run: History, report: r.Report, place: str = "a") -> str:
    """What the row of a place is found by after a report."""
    turn(run.state, report, run.evaluator)
    tags = {key: tag for kind, key, tag, _ in changes(run.state) if kind == "places"}
    run.state.commit()
    return tags[place]


# -- who is told to look ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "request_", "expected"),
    [
        ({}, {}, None),
        ({"cache": True}, {}, True),
        ({"cache": False}, {"changed_only": True}, None),
        ({}, {"changed_only": True}, True),
        # Recorded for later runs, and not looked for.
        ({"reads": ("f.txt",)}, {}, False),
        ({"writes": ("f.txt",)}, {}, False),
        ({"cache": False, "writes": ("f.txt",)}, {"changed_only": True}, None),
        ({"cache": True}, {"forced": ("a",)}, False),
        ({"cache": True, "sweep": "all"}, {"forced": ("all",)}, False),
        ({}, {"changed_only": True, "forced": ("b",)}, True),
    ],
    ids=str,
)
def test_a_step_looks_for_an_earlier_result_where_the_file_or_the_run_says_so(
    fields: dict[str, Any], request_: dict[str, Any], expected: bool | None
):
    about = wanted(started(step("a", **fields), **request_)).reuse

    assert (about if about is None else about.looks) == expected


def test_an_agent_looks_only_where_its_own_step_says_so():
    text = "{{name: w, steps: [{{step: a, agent: {{prompt: hi}}{}}}]}}"
    by_run = run_of(text.format(""))
    by_step = run_of(text.format(", cache: true"))
    for run in (by_run, by_step):
        run.state.run.changed_only = True

    assert (wanted(by_run).reuse, wanted(by_step).reuse is not None) == (None, True)


def test_a_retry_looks_for_nothing_and_is_recorded_and_a_loss_is_no_try():
    retried = started(step("a", cache=True, rules=retry(1)), step("b", cache=True))
    retried.fail("a").fire_all()
    retried.lose("b")

    assert (wanted(retried).attempt, wanted(retried).reuse and wanted(retried).reuse.looks) == (2, False)
    # A worker that was lost has not tried it.
    assert wanted(retried, "b").reuse and wanted(retried, "b").reuse.looks


def test_what_is_told_of_a_failure_neither_looks_nor_is_recorded():
    run = started(step("a", next=[edge("fix", "failure")]), step("fix", cache=True))

    run.fail("a")

    assert wanted(run, "fix").reuse is None


def test_handlers_checks_and_the_end_look_for_nothing():
    run = History(
        workflow(step("a", cache=True, on_failure=handler("true", strategy="fallback")), end=step("end", action=None))
    ).start(changed_only=True)
    run.fail("a")

    assert [wanted(run, key).reuse for key in run.queued] == [None]
    ending = History(workflow(step("a"), end=step("end", cache=True))).start(changed_only=True).ok("a")
    assert (ending.queued, wanted(ending, "end").reuse) == (["end"], None)


def test_a_key_of_the_author_is_part_of_what_is_known():
    run = run_of(
        "{name: w, inputs: {day: {}}, steps: [{step: a, shell: x, cache: {key: '${inputs.day}'}}]}", day="monday"
    )

    assert wanted(run).reuse and wanted(run).reuse.key == "monday"


# -- what it is found by ---------------------------------------------------------------------------------------------


def test_a_fingerprint_knows_no_run_attempt_worker_or_limits():
    first = wanted(started(step("a", cache=True)))
    second = msgspec.structs.replace(first, run_id=9, attempt=4, visit=2, timeout=3.0, uid="x", memory=5, version="v")

    assert fingerprint(first, {"f": "1"}) == fingerprint(second, {"f": "1"}) != fingerprint(first, {"f": "2"})


def test_limits_and_rules_of_a_step_are_no_part_of_it_and_its_check_is():
    plain, limited, checked = (
        wanted(started(step("a", cache=True, **fields)))
        for fields in ({}, {"timeout": 5.0, "rules": retry(3)}, {"validator": command("test -e x")})
    )

    assert fingerprint(plain, {}) == fingerprint(limited, {}) != fingerprint(checked, {})


# -- when it may be found --------------------------------------------------------------------------------------------


def test_a_result_is_found_once_its_step_has_completed_and_not_before():
    run = started(step("a", cache=True, on_success=(command("true"),)))

    after_the_attempt = tag_after(run, ended(run))
    after_all = tag_after(run, r.TaskEnded(run.clock, "a.on_success@1.0", 1))

    assert (after_the_attempt, after_all) == ("", PRINT)


def test_a_result_that_was_not_accepted_or_was_recovered_is_not_found():
    rejected = started(step("a", cache=True, validator=command("false"), continue_on_error=True))
    rejected.report(ended(rejected))
    recovered = started(step("a", cache=True, on_failure=handler("true", strategy="fallback")))
    recovered.fail("a")

    after_check = tag_after(rejected, r.TaskEnded(rejected.clock, "a.validator@1", 1, Outcome(1)))
    after_handler = tag_after(recovered, r.TaskEnded(recovered.clock, "a.on_failure@1.0", 1))

    assert (after_check, after_handler) == ("", "")


def test_a_result_that_is_undone_is_found_no_more():
    run = started(step("a", cache=True, undo=command("true")), step("b", needs=["a"]))
    assert tag_after(run, ended(run)) == PRINT
    run.tasks["b"] = 1
    run.fail("b")

    assert tag_after(run, r.TaskEnded(run.clock, "a.undo@1", 1)) == ""


def row_of(run: History, place: str = "a", **fields: Any) -> bytes:
    turn(run.state, ended(run, place, **fields), run.evaluator)
    return next(data for kind, key, _, data in changes(run.state) if (kind, key) == ("places", place) and data)


def test_a_result_taken_over_names_the_run_that_did_the_work():
    ran, took_over = started(step("a", cache=True)), started(step("a", cache=True))
    asked = msgspec.structs.replace(wanted(started(step("a", cache=True))), run_id=9)

    first = result_of(5, "completed", "a", row_of(ran, output=7), asked)
    second = result_of(6, "completed", "a", row_of(took_over, output=7, reused_run_id=5), asked)

    assert first is not None and first == second
    assert (first.run_id, first.output) == (5, 7)


def test_a_damaged_row_of_another_run_is_no_result():
    asked = wanted(started(step("a", cache=True)))

    assert result_of(5, "completed", "a", b"\xc1 damaged", asked) is None


def test_no_run_takes_over_from_itself_nor_what_may_still_be_undone():
    undoable = step("a", cache=True, undo=command("true"))
    row = row_of(started(undoable))
    asked = msgspec.structs.replace(wanted(started(undoable)), run_id=9)

    found = [
        result_of(run_id, status, "a", row, asked) is not None
        for run_id, status in ((9, "completed"), (5, "running"), (5, "completed"), (5, "failed"))
    ]

    assert found == [False, False, True, True]


def test_a_run_takes_nothing_from_itself_that_it_has_taken_over_and_something_from_one_that_still_runs():
    row = row_of(started(step("a", cache=True)), reused_run_id=5)
    asked = msgspec.structs.replace(wanted(started(step("a", cache=True))), run_id=9)

    assert result_of(9, "completed", "a", row, asked) is None
    assert result_of(6, "running", "a", row, asked) is not None


def test_no_run_takes_back_what_another_took_over_from_it():
    row = row_of(started(step("a", cache=True)), reused_run_id=9)
    asked = msgspec.structs.replace(wanted(started(step("a", cache=True))), run_id=9)

    assert result_of(5, "completed", "a", row, asked) is None


def test_what_can_be_undone_is_taken_from_the_run_that_did_it_alone():
    undoable = step("a", cache=True, undo=command("true"))
    asked = msgspec.structs.replace(wanted(started(undoable)), run_id=9)

    assert result_of(6, "completed", "a", row_of(started(undoable), reused_run_id=5), asked) is None


# -- files -----------------------------------------------------------------------------------------------------------


def test_of_each_path_the_last_writer_is_asked():
    one, other = FileRecord("x", "f", "1"), FileRecord("y", "f", "2")
    aside = FileRecord("z", "g", "3")

    found = list(last_writers([(7, "b", other), (3, "a", one), (1, "c", aside)]))

    assert found == [("b", other), ("c", aside)]


def test_of_a_log_without_records_the_paths_are_known():
    run = History(workflow(step("a", writes=("mesh", "b.txt")), step("b", needs=["a"]), files={"mesh": "out/mesh"}))
    run.start().ok("a").fail("b")

    found = list(kept_files(run.state, ""))

    assert found == [("a", FileRecord("mesh", "out/mesh")), ("a", FileRecord("b.txt", "b.txt"))]


def test_a_round_runs_steps_whose_files_are_stale_and_says_nothing_of_those_that_run_anyway():
    run = started(step("a", writes=("f",)), step("b", needs=["a"]), step("c", writes=("g",)), step("d", needs=["c"]))
    run.ok("a", "b", "c").fail("d")
    stale = (StaleFile("a", "f", "gone"), StaleFile("d", "h", "gone"))

    plan = plan_round(run.state, r.RetryRequested(run.clock, "me", stale=stale))

    assert (plan.steps, plan.stale) == (("a", "b", "d"), stale[:1])
    assert rerun_reasons(run.state, plan) == {"a": "f is gone", "b": "it comes after 'a'", "d": "it failed"}
