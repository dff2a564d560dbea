"""What is told of a run in the end, by whoever drove it and has not seen all that was written."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from tests.support.commands import ran
from tests.support.program_runs import Program

from mulligan.core.model import events as e
from mulligan.core.turn import fold
from mulligan.history.views import count_steps
from mulligan.service.driving.local_worker import open_driver
from mulligan.service.driving.outcome import Outcome
from mulligan.service.driving.run_progress import STEPS_ANNOUNCED_MAX, RunProgress
from mulligan.service.home import Home
from mulligan.service.service import Service
from mulligan.testing.history import History, edge, step, workflow

MENDED = """\
name: mended
steps:
  - {step: one, shell: 'test -e there || { touch there; exit 3; }', retry: {max_retries: 1, delay: 1ms}}
  - {step: two, needs: [one], shell: 'test -e here || { touch here; exit 4; }', retry: {max_retries: 1, delay: 1ms}}
"""


def outcome_of(home: Path, *, unseen: range) -> Outcome:
    """The outcome of the run there, by a driver who has not seen these of its entries; nobody drives it any more."""
    service = Service(Home(home))
    log = list(service.reader.events(1))
    progress = RunProgress()
    for entry in (entry for entry in log if entry.seq - 1 not in unseen):
        progress.update(fold(service.reader.state(1).workflow, log[: entry.seq]), [entry])
    with open_driver(service.reader) as driver:
        found = service.driving.outcome(driver, 1, "ended", progress, 1.0)
    service.close()
    return found


def answers(found: Outcome) -> list[tuple[str, str]]:
    return [(one.place, one.answer) for one in found.failures]


def test_an_end_that_the_driver_has_not_seen_is_told_as_it_was_written(folder: Path):
    ran(MENDED)

    # The store wrote the last commit and could not say so; or another worker has driven the run to its end.
    found = outcome_of(folder / ".mulligan", unseen=range(8, 1000))

    assert (found.status, found.exit_code, found.counts["completed"]) == ("completed", 0, 2)
    assert answers(found) == [("one", "retried, then completed"), ("two", "retried, then completed")]


def test_what_was_written_in_between_and_not_seen_is_told_too(folder: Path):
    ran(MENDED)

    found = outcome_of(folder / ".mulligan", unseen=range(3, 9))

    assert answers(found) == [("one", "retried, then completed"), ("two", "retried, then completed")]


def sentences(run: History, first: int, *, knows_before: bool = True) -> list[str]:
    """What is told of the entries from the first on by one who looks on from there."""
    progress, flow = RunProgress(), run.state.workflow
    if knows_before:
        progress.add_earlier(run.state.run.run_id, run.log)
    for entry in (entry for entry in run.log if entry.seq >= first):
        progress.update(fold(flow, run.log[: entry.seq]), [entry])
    return [one.line.text for one in progress.take_announcements()]


def test_who_takes_a_run_up_words_it_as_one_who_was_there_from_the_beginning():
    flow = workflow(step("deploy", next=[edge("repair", on="failure")]), step("repair"))
    run = History(flow).start().fail("deploy").ok("repair")
    [mended] = [entry.seq for entry in run.log if entry.fact == e.StepCompleted("repair", 1, 1, is_final=True)]

    from_the_beginning = sentences(run, 1)
    taken_up = sentences(run, mended)

    assert "completed; handled the failure of 'deploy'" in taken_up
    assert from_the_beginning[-len(taken_up) :] == taken_up
    # What makes the difference.
    assert sentences(run, mended, knows_before=False) != taken_up


def test_a_run_that_is_taken_up_says_how_long_all_of_it_took_and_how_long_this_stretch(folder: Path):
    ran(MENDED)
    service = Service(Home(folder / ".mulligan"))
    record = service.runs.record(1)

    with open_driver(service.reader) as driver:
        first = service.driving.outcome(driver, 1, "ended", RunProgress(), 7.0)
        later = service.driving.outcome(driver, 1, "ended", RunProgress(), 0.001, is_taken_up=True)

    service.close()
    whole = (record.updated_at - record.created_at).total_seconds()
    # As the list and the report have it: not with the time that it took to begin.
    assert (first.seconds, first.stretch_seconds) == (whole, None)
    assert (later.seconds, later.stretch_seconds) == (whole, 0.001)


def test_of_a_large_run_whoever_looks_sees_all_that_happened_though_nothing_ordinary_is_announced():
    names = [f"s{number}" for number in range(STEPS_ANNOUNCED_MAX + 1)]
    run = History(workflow(step(names[0]), *(step(name, needs=[before]) for before, name in pairwise(names))))
    progress, seen = RunProgress(), 0

    def look() -> None:
        nonlocal seen
        progress.update(run.state, run.log[seen:])
        seen = len(run.log)

    run.start()
    look()
    for name in names[:30]:
        run.started(name)
        look()
        run.ok(name, usage={"wall_seconds": 0.1})
        look()
    run.started(names[30])
    look()

    assert progress.take_announcements() == []
    assert progress.counts == count_steps(run.state)
    assert [one.place for one in progress.activities(5)] == [names[30]]
    assert list(progress.running_since()) == [names[30]]

    run.fail(names[30])
    look()

    assert next(one.line.place for one in progress.take_announcements()) == names[30]
    assert [one.place for one in progress.failures.lines(run.state)] == [names[30]]
    assert progress.counts == count_steps(run.state)


def test_of_a_program_with_many_calls_whoever_looks_sees_all_that_have_ended():
    run, progress, seen = Program(), RunProgress(), 0
    for number in range(STEPS_ANNOUNCED_MAX + 30):
        run.go_on(run.load(number, kind="inline", output=number))
        progress.update(run.state, run.log[seen:], is_ordinary=seen > 0)
        seen = len(run.log)

    assert progress.counts == count_steps(run.state)
    assert [one.place for one in progress.activities(5)] == ["nightly"]
