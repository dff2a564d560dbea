"""What is told of a run in the end, by whoever drove it and has not seen all that was written."""

from __future__ import annotations

from pathlib import Path

from mulligan.core.turn import fold
from mulligan.service.following import Following
from mulligan.service.home import Home
from mulligan.service.outcome import Outcome, outcome
from mulligan.service.verbs import Service

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
    log = list(service.events(1))
    following = Following()
    for entry in (entry for entry in log if entry.seq - 1 not in unseen):
        following.see(fold(service.state(1).workflow, log[: entry.seq]), [entry])
    with service.driver(None) as driver:
        found = outcome(service, driver, 1, "ended", following, 1.0)
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
