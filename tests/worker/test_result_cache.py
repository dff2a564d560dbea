"""Earlier results, at the worker: found by what goes in, and recorded with what was written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.work import Work

from mulligan.core.effects.reuse import Reuse
from mulligan.core.effects.snapshot import changes
from mulligan.core.model.reports import TaskEnded, TaskInterrupted
from mulligan.core.turn import turn
from mulligan.errors import CodecError, StoreUnavailable
from mulligan.testing.history import History, step, workflow
from mulligan.worker.slots.loop_limits import LOOP_BYTES_MAX

# By day: none of these tests is about how a child starts.
pytestmark = pytest.mark.usefixtures("forked_children")

LOOKS = Reuse(definition="d1", looks=True)


class FakeResults:
    """Stands for the rows of a store: what was recorded, and how often it was looked for."""

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[int, str, str, bytes]]] = {}
        self.asked: list[str] = []
        self.is_away = False
        self.is_damaged = False

    def __call__(self, tag: str, limit: int, beside: int) -> list[tuple[int, str, str, bytes]]:
        if self.is_away:
            self.is_away = False
            raise StoreUnavailable("away")
        self.asked.append(tag)
        if self.is_damaged:
            raise CodecError("a row of the tables that was kept cannot be read")
        return self.rows.get(tag, [])[:limit]

    def keep(self, run_id: int, report: TaskEnded) -> None:
        """As a run whose only step ended so has it in its tables."""
        run = History(workflow(step("a", writes=tuple(record.name for record in report.files)))).start()
        turn(run.state, msgspec.structs.replace(report, at=run.clock, place="a", attempt=1), run.evaluator)
        row = next(row for row in changes(run.state) if row[:2] == ("places", "a"))
        assert row[2] == report.fingerprint and row[3] is not None
        self.rows.setdefault(row[2], []).insert(0, (run_id, "completed", "a", row[3]))


@pytest.fixture
def results() -> FakeResults:
    return FakeResults()


@pytest.fixture
def work(tmp_path: Path, results: FakeResults) -> Iterator[Work]:
    work = Work(tmp_path, results=results)
    yield work
    work.close()
    assert work.remaining() == []


def run(work: Work, text: str = "echo ran >> trace; echo out", **fields: Any) -> TaskEnded:
    return work.run_shell(text, **{"place": "a", "run_id": 2, "reuse": LOOKS, **fields})


def ran(work: Work) -> int:
    trace = work.folder / "trace"
    return len(trace.read_text().splitlines()) if trace.exists() else 0


def test_a_result_is_found_by_what_goes_in_and_nothing_is_started(work: Work, results: FakeResults):
    first = run(work, run_id=1)
    results.keep(1, first)

    second = run(work)

    assert (second.output, second.reused_run_id, second.fingerprint) == ("out", 1, first.fingerprint)
    assert (ran(work), second.usage) == (1, {})


@pytest.mark.parametrize(
    "changed",
    [
        {"text": "echo ran >> trace; echo  out"},
        {"env": {"A": "2"}},
        {"cwd": "."},
        {"step": "b"},
        {"workflow": "other"},
        {"reuse": Reuse(definition="d2", looks=True)},
        {"reuse": Reuse(definition="d1", looks=True, key="k")},
    ],
)
def test_whatever_else_goes_in_makes_another_fingerprint(work: Work, results: FakeResults, changed: dict[str, Any]):
    results.keep(1, run(work, run_id=1, env={"A": "1"}))

    second = run(work, **{"env": {"A": "1"}, **changed})

    assert (second.reused_run_id, ran(work)) == (0, 2)


@pytest.mark.parametrize("size", [10, LOOP_BYTES_MAX + 1])
def test_the_contents_of_files_count_whatever_their_size(work: Work, results: FakeResults, size: int):
    (work.folder / "in").write_bytes(b"a" * size)
    about = msgspec.structs.replace(LOOKS, reads={"in": "in"})
    text = f"echo ran >> trace; head -c {size} /dev/zero > out"
    files = {"out": "out"}
    first = run(work, text, run_id=1, reuse=about, files=files)
    results.keep(1, first)

    same = run(work, text, reuse=about, files=files)
    (work.folder / "out").write_bytes(b"z" * size)
    damaged = run(work, text, reuse=about, files=files)
    (work.folder / "in").write_bytes(b"b" * size)
    other = run(work, text, reuse=about, files=files)

    assert [(record.name, record.path, record.size) for record in first.files] == [("out", "out", size)]
    assert [one.reused_run_id for one in (same, damaged, other)] == [1, 0, 0]
    assert same.files == first.files
    assert (damaged.fingerprint == first.fingerprint, other.fingerprint == first.fingerprint) == (True, False)
    assert ran(work) == 3


def test_what_it_wrote_is_recorded_where_nothing_is_looked_for(work: Work, results: FakeResults):
    ended = run(work, "echo x > out", reuse=None, files={"o": "out"})

    assert [record.name for record in ended.files] == ["o"]
    assert (ended.fingerprint, results.asked) == ("", [])


def test_of_a_failure_nothing_is_recorded(work: Work):
    ended = run(work, "echo x > out; exit 3", files={"o": "out"})

    assert (ended.files, ended.fingerprint, ended.outcome.exit_code) == ((), "", 3)


def test_a_file_that_cannot_be_read_makes_a_step_run_and_its_result_nobodys(work: Work, results: FakeResults):
    os.mkfifo(work.folder / "in")

    ended = run(work, reuse=msgspec.structs.replace(LOOKS, reads={"in": "in"}))

    assert (ended.output, ended.fingerprint, results.asked) == ("out", "", [])


@pytest.mark.parametrize("size", [10, LOOP_BYTES_MAX + 1])
@pytest.mark.parametrize("change", ["printf b | dd of=in conv=notrunc", "rm in", "rm in; mkfifo in"])
def test_what_was_read_from_a_file_that_changed_meanwhile_is_nobodys_result(
    work: Work, results: FakeResults, change: str, size: int
):
    (work.folder / "in").write_bytes(b"a" * size)

    ended = run(work, f"{change}; echo out", reuse=msgspec.structs.replace(LOOKS, reads={"in": "in"}))

    assert (ended.output, ended.fingerprint) == ("out", "")


def test_a_file_that_came_while_its_reader_ran_makes_the_result_nobodys(work: Work, results: FakeResults):
    ended = run(work, "echo x > in", reuse=msgspec.structs.replace(LOOKS, reads={"in": "in"}))

    assert (ended.outcome.exit_code, ended.fingerprint) == (0, "")


def test_the_files_of_a_declared_path_must_be_where_they_were(work: Work, results: FakeResults):
    results.keep(1, run(work, "echo ran >> trace; echo x | tee one > two", run_id=1, files={"o": "one"}))

    moved = run(work, "echo ran >> trace; echo x | tee one > two", files={"o": "two"})

    assert (moved.reused_run_id, ran(work)) == (0, 2)


def test_while_the_store_is_away_a_task_waits_and_then_finds_its_result(work: Work, results: FakeResults):
    results.keep(1, run(work, run_id=1))
    results.is_away = True

    assert run(work).reused_run_id == 1


def test_a_row_of_another_run_that_cannot_be_read_makes_the_step_run(work: Work, results: FakeResults):
    results.is_damaged = True

    ended = run(work)

    assert (ended.output, ended.reused_run_id, len(results.asked)) == ("out", 0, 1)


def test_a_task_that_is_stopped_while_its_files_are_read_never_starts(work: Work):
    (work.folder / "in").write_bytes(b"a" * (LOOP_BYTES_MAX + 1))
    lease = work.shell("echo ran >> trace", place="a", reuse=msgspec.structs.replace(LOOKS, reads={"in": "in"}))

    work.start(lease)
    work.executor.stop_all(0.0)

    assert [type(report) for report in work.reports()] == [TaskInterrupted]
    assert (ran(work), list(work.executor.running)) == (0, [])
