"""What is told of a run in the end, by whoever drove it and has not seen all that was written."""

from __future__ import annotations

from pathlib import Path

from mulligan.core.model import events as e
from mulligan.core.turn import fold
from mulligan.service import Service
from mulligan.service.home import Home
from mulligan.service.outcome import Outcome
from mulligan.service.run_progress import Following
from mulligan.testing.history import History, edge, step, workflow

from .commands import ran

MENDED = """\
name: mended
steps:
  - {step: one, shell: 'test -e there || { touch there; exit 3; }', retry: {max_retries: 1, delay: 1ms}}
  - {step: two, needs: [one], shell: 'test -e here || { touch here; exit 4; }', retry: {max_retries: 1, delay: 1ms}}
"""


def told(home: Path, *, unseen: range) -> Outcome:
    """The outcome of the run there, by a driver who has not seen these of its entries; nobody drives it any more."""
    service = Service(Home(home))
    log = list(service.reader.events(1))
    following = Following()
    for entry in (entry for entry in log if entry.seq - 1 not in unseen):
        following.see(fold(service.reader.state(1).workflow, log[: entry.seq]), [entry])
    with service.control.driver(None) as driver:
        found = service.outcome(driver, 1, "ended", following, 1.0)
    service.close()
    return found


def answers(found: Outcome) -> list[tuple[str, str]]:
    return [(one.place, one.answer) for one in found.answers]


def test_an_end_that_the_driver_has_not_seen_is_told_as_it_was_written(folder: Path):
    ran(MENDED)

    # The store wrote the last commit and could not say so; or another worker has driven the run to its end.
    found = told(folder / ".mulligan", unseen=range(8, 1000))

    assert (found.status, found.exit_code, found.counts["completed"]) == ("completed", 0, 2)
    assert answers(found) == [("one", "retried, then completed"), ("two", "retried, then completed")]


def test_what_was_written_in_between_and_not_seen_is_told_too(folder: Path):
    ran(MENDED)

    found = told(folder / ".mulligan", unseen=range(3, 9))

    assert answers(found) == [("one", "retried, then completed"), ("two", "retried, then completed")]


def sentences(run: History, first: int, *, knows_before: bool = True) -> list[str]:
    """What is told of the entries from the first on by one who looks on from there."""
    following, flow = Following(), run.state.workflow
    if knows_before:
        following.recall(run.state.run.run_id, run.log)
    for entry in (entry for entry in run.log if entry.seq >= first):
        following.see(fold(flow, run.log[: entry.seq]), [entry])
    return [told.line.text for told in following.news()]


def test_who_takes_a_run_up_words_it_as_one_who_was_there_from_the_beginning():
    flow = workflow(step("deploy", next=[edge("repair", on="failure")]), step("repair"))
    run = History(flow).start().fail("deploy").ok("repair")
    [mended] = [entry.seq for entry in run.log if entry.fact == e.StepCompleted("repair", 1, 1, is_final=True)]

    from_the_beginning = sentences(run, 1)
    taken_up = sentences(run, mended)

    assert "completed; that handles the failure of 'deploy'" in taken_up
    assert from_the_beginning[-len(taken_up) :] == taken_up
    # What makes the difference.
    assert sentences(run, mended, knows_before=False) != taken_up


def test_a_run_that_is_taken_up_says_how_long_all_of_it_took_and_how_long_this_stretch(folder: Path):
    ran(MENDED)
    service = Service(Home(folder / ".mulligan"))
    record = service.record(1)

    with service.control.driver(None) as driver:
        first = service.outcome(driver, 1, "ended", Following(), 7.0)
        later = service.outcome(driver, 1, "ended", Following(), 0.001, is_taken_up=True)

    service.close()
    whole = (record.updated_at - record.created_at).total_seconds()
    # As the list and the report have it: not with the time that it took to begin.
    assert (first.seconds, first.stretch_seconds) == (whole, None)
    assert (later.seconds, later.stretch_seconds) == (whole, 0.001)
