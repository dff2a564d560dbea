"""A worker of a shared store holds short tasks until a slot is free, starts them then, and gives them back."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.work import Work

from mulligan.core.effects.lease_rules import HELD_SECONDS_MAX
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded, TaskInterrupted
from mulligan.ports import Lease

# By day: none of these tests is about how a child starts.
pytestmark = pytest.mark.usefixtures("forked_children")

SLOTS = ("one", "two")
NOTE = "def main(name):\n    with open('order', 'a') as order: order.write(name)\n"


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    """A worker with two slots that has seen a short task."""
    work = Work(tmp_path, leases_ahead=True, lease_seconds=300.0)
    work.executor._prefetch.record_duration(0.001)
    for name in SLOTS:
        os.mkfifo(work.folder / name)
    yield work
    work.close()


def filled(work: Work) -> list[Lease]:
    """Tasks that take both slots until they are released."""
    return [work.python("def main(go): open(go).read()", {"go": str(work.folder / name)}) for name in SLOTS]


def release(work: Work) -> None:
    for name in SLOTS:
        (work.folder / name).write_text("")


def note(work: Work, name: str) -> Lease:
    return work.python(NOTE, {"name": name}, cwd=str(work.folder))


def test_it_asks_for_more_tasks_than_it_has_slots_once_it_has_seen_a_short_one(work: Work, tmp_path: Path) -> None:
    (tmp_path / "fresh").mkdir()
    fresh = Work(tmp_path / "fresh", leases_ahead=True)
    before = fresh.executor.offer()
    fresh.close()

    assert before.ahead == 0
    assert work.executor.offer().ahead > 0


def test_it_holds_tasks_of_50_ms_only_if_no_other_worker_could_run_them(work: Work) -> None:
    for _ in range(100):
        work.executor._prefetch.record_duration(0.06)
    work.executor.reserve(work.python("def main(): pass").task)
    work.executor.reserve(work.python("def main(): pass").task)
    more, large = work.python("def main(): pass").task, work.python("def main(): pass", cpus=2.0).task

    assert not work.executor.fits(more)
    assert work.executor.may_hold(more)
    assert not work.executor.may_hold(large)


def test_it_asks_again_when_it_has_started_half_of_what_it_holds(work: Work) -> None:
    most = work.executor.offer().ahead
    for _ in range(2 + most // 2 + 1):
        work.executor.reserve(work.python("def main(): pass").task)

    assert work.executor.offer().ahead == 0


def test_a_worker_of_a_store_in_a_file_holds_no_python_task(tmp_path: Path) -> None:
    work = Work(tmp_path, cpus=1)
    work.executor._prefetch.record_duration(0.001)
    work.executor.reserve(work.python("def main(): pass").task)

    assert work.executor.offer().ahead == 0
    assert not work.executor.fits(work.python("def main(): pass").task)
    work.close()


def test_what_is_held_starts_when_a_slot_is_free(work: Work) -> None:
    work.start(*filled(work), note(work, "a"), note(work, "b"))
    is_full = work.executor.offer().cpus == 0

    release(work)
    reports = work.reports(4)

    assert is_full
    assert all(isinstance(report, TaskEnded) and report.outcome == Outcome() for report in reports)
    assert sorted((work.folder / "order").read_text()) == ["a", "b"]
    assert work.executor.offer().cpus == 2.0


def test_what_is_held_can_be_stopped_and_never_starts(work: Work) -> None:
    held = note(work, "a")
    work.start(*filled(work), held)

    work.executor.stop(held.token, 10.0)
    (report,) = work.reports()

    assert isinstance(report, TaskEnded)
    assert (report.place, report.outcome) == (
        held.task.place,
        Outcome(exit_code=None, signal=15, is_stopped=True),
    )
    assert not (work.folder / "order").exists()


def test_when_all_is_stopped_what_is_held_is_interrupted_and_never_starts(work: Work) -> None:
    work.start(*filled(work), note(work, "a"))

    work.executor.stop_all(0.0)
    reports = work.reports(3)

    assert {type(report) for report in reports} == {TaskInterrupted}
    assert not (work.folder / "order").exists()


@pytest.mark.parametrize("kind", ["python", "shell"])
def test_what_is_held_for_long_is_given_back_and_never_starts(work: Work, kind: str) -> None:
    held = note(work, "a") if kind == "python" else work.shell("touch order")
    work.start(*filled(work), held)

    assert work.executor.collect(0.0) == []
    work.executor._give_back_held(time.monotonic() + HELD_SECONDS_MAX)
    (report,) = work.reports()

    assert isinstance(report, TaskInterrupted)
    assert report.place == held.task.place
    release(work)
    work.reports(2)
    assert not (work.folder / "order").exists()


def test_after_tasks_were_given_back_none_is_asked_for_until_short_ones_have_ended(work: Work) -> None:
    work.start(*filled(work), note(work, "a"))
    assert work.executor.collect(0.0) == []
    work.executor._give_back_held(time.monotonic() + HELD_SECONDS_MAX)
    work.reports()

    ahead = work.executor.offer().ahead
    for _ in range(50):
        work.executor._prefetch.record_duration(0.001)

    # Otherwise it would lease the same ones again each second, for as long as the slots are taken.
    assert ahead == 0
    assert work.executor.offer().ahead > 0
    release(work)
    work.reports(2)


def test_nothing_that_is_held_starts_while_the_lease_may_be_void(work: Work) -> None:
    work.start(*filled(work), note(work, "a"))
    work.executor._renewed_at -= 200.0

    release(work)
    work.reports(2)
    is_waiting = not (work.folder / "order").exists()
    work.executor.renew(time.monotonic())
    work.reports()

    assert is_waiting
    assert (work.folder / "order").read_text() == "a"
