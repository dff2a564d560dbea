"""What the result cache decides, without a process: which earlier result fits, and which others may take over."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from mulligan.core.effects.fingerprints import fingerprint
from mulligan.core.effects.reuse import Reuse
from mulligan.core.effects.snapshot import changes
from mulligan.core.effects.tasks import Task
from mulligan.core.model.artifacts import Artifact, make_reference
from mulligan.core.model.file_records import FileRecord
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded
from mulligan.core.turn import turn
from mulligan.errors import CodecError
from mulligan.ports import Lease
from mulligan.testing.history import T0, History, step, workflow
from mulligan.worker.child.warm_child import CallResult
from mulligan.worker.outputs.file_hashes import RECORD_FILES, record_file, record_files
from mulligan.worker.outputs.result_cache import RESULTS_MAX, ResultCache
from mulligan.worker.running_task import RunningTask
from mulligan.worker.secrets.secret_commands import NotReady
from mulligan.worker.slots.loop_limits import LOOP_BYTES_MAX

Row = tuple[int, str, str, bytes]


class Jobs:
    """Stands for the children: what they are asked for is done when the test says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], Callable[[CallResult | None], None]]] = []

    def call(self, function: str, args: dict[str, Any], then: Callable[[CallResult | None], None], files: Any) -> None:
        assert (function, files) == (RECORD_FILES, {})
        self.calls.append((args["paths"], then))

    def answer(self, **fields: Any) -> None:
        paths, then = self.calls.pop(0)
        then(
            msgspec.convert(
                {"number": 1, "cpu": 0, "peak": 0, "out": 0, "err": 0, "output": record_files(paths)} | fields,
                CallResult,
            )
        )


class Kept:
    """Stands for the artifacts of a store: files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, artifact: Artifact) -> str:
        return "" if artifact.name.startswith("db/") else str(self.folder / artifact.name.replace("/", "-"))


class World:
    """A cache with its surroundings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs = Jobs()
        self.rows: list[Row] = []
        self.asked: list[tuple[str, int]] = []
        self.ready = 0
        self.reported: list[tuple[RunningTask, TaskEnded]] = []
        self.cache = ResultCache(
            self.jobs,  # type: ignore[arg-type]
            self._find,
            Kept(folder),  # type: ignore[arg-type]
            on_ready=self._on_ready,
            report_end=lambda running, report: self.reported.append((running, report)),
        )

    def _find(self, tag: str, limit: int, beside: int) -> list[Row]:
        # Results are those of the project of the run.
        assert beside == 9
        self.asked.append((tag, limit))
        return self.rows

    def _on_ready(self) -> None:
        self.ready += 1

    def task(self, *, reads: dict[str, str] | None = None, token: int = 1, **fields: Any) -> RunningTask:
        fields.setdefault("reuse", Reuse("d", looks=True, reads=reads or {}))
        task = Task(9, "a", 1, "shell", {}, "w", "v", "a", 1, home=str(self.folder), **fields)
        lease = Lease(task, "w1", token)
        return RunningTask(lease, lease, None)  # type: ignore[arg-type]

    def keep(self, run_id: int, output: Any = None, files: tuple[FileRecord, ...] = ()) -> None:
        run = History(workflow(step("a", writes=tuple(one.name for one in files)))).start()
        report = TaskEnded(run.clock, "a", 1, output=output, files=files, fingerprint="f")
        turn(run.state, report, run.evaluator)
        data = next(row[3] for row in changes(run.state) if row[:2] == ("places", "a"))
        assert data is not None
        self.rows.append((run_id, "completed", "a", data))

    def write(self, name: str, content: bytes | str = "x") -> str:
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        # Old enough that its time is trusted.
        os.utime(path, ns=(10**18, 10**18))
        return str(path)

    def record(self, name: str) -> FileRecord:
        found = record_file(str(self.folder / name))
        assert found is not None
        return replace(found, name=name, path=name)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def done(**fields: Any) -> TaskEnded:
    return TaskEnded(T0, "a", 1, **fields)


# -- before a task ---------------------------------------------------------------------------------------------------


def test_a_task_that_is_not_reused_is_not_looked_for(world: World) -> None:
    world.keep(5)

    assert world.cache.find(world.task(reuse=None)) is None
    assert world.asked == []


def test_the_newest_result_that_fits_is_reported(world: World) -> None:
    world.keep(9, "of this very run")
    world.keep(5, "newer")
    world.keep(4, "older")
    running = world.task()

    found = world.cache.find(running)

    assert found is not None
    assert (found.place, found.attempt, found.output, found.reused_run_id) == ("a", 1, "newer", 5)
    assert found.fingerprint == running.fingerprint == fingerprint(running.lease.task, {})
    assert world.asked == [(running.fingerprint, RESULTS_MAX)]


def test_a_result_is_reported_with_its_files(world: World) -> None:
    world.write("out")
    world.keep(5, files=(world.record("out"),))

    found = world.cache.find(world.task(files={"out": "out"}))

    assert found is not None and found.files == (world.record("out"),)


def test_a_task_that_does_not_look_is_known_by_its_fingerprint_all_the_same(world: World) -> None:
    world.keep(5)
    path = world.write("in", "one")
    running = world.task(reuse=Reuse("d", reads={"data": "in", "more": "gone"}))

    assert world.cache.find(running) is None
    assert world.asked == []
    sha256 = world.record("in").sha256
    assert running.input_hashes == {path: sha256, str(world.folder / "gone"): ""}
    assert running.fingerprint == fingerprint(running.lease.task, {"data": sha256, "more": ""})


def test_a_result_fits_only_while_its_files_are_as_they_were_written(world: World) -> None:
    world.write("out", "one")
    world.keep(5, files=(world.record("out"),))

    def finds(**files: str) -> bool:
        found = world.cache.find(world.task(files=files))
        world.cache.clear()
        return found is not None

    assert finds(out="out")
    assert not finds()
    assert not finds(out="elsewhere")
    assert not finds(other="out")
    os.utime(world.folder / "out", ns=(1, 10**18 + 1))
    assert finds(out="out")
    world.write("out", "other")
    assert not finds(out="out")
    os.unlink(world.folder / "out")
    assert not finds(out="out")


def test_a_result_whose_files_were_never_read_fits_no_more(world: World) -> None:
    os.mkfifo(world.folder / "out")
    world.keep(5, files=(FileRecord("out", "out"),))

    assert world.cache.find(world.task(files={"out": "out"})) is None


@pytest.mark.parametrize(
    ("name", "size", "is_found"),
    [
        ("5/a/there", 3, True),
        ("5/a/there", 4, False),
        ("5/a/gone", 3, False),
        ("db/a/row", 3, True),
        ("../x", 3, False),
    ],
)
def test_a_result_fits_only_while_its_artifacts_are_kept(world: World, name: str, size: int, is_found: bool) -> None:
    world.write("5-a-there", "abc")
    kept = make_reference(Artifact("5/a/there", 3, "s"))
    world.keep(5, {"rows": [make_reference(Artifact(name, size, "s")), kept]})

    assert (world.cache.find(world.task()) is not None) == is_found


def test_without_a_store_of_artifacts_or_of_results_nothing_is_asked_of_them(world: World) -> None:
    world.keep(5, {"rows": make_reference(Artifact("5/a/gone", 1, "s"))})
    ready: list[int] = []
    fields: dict[str, Any] = {"on_ready": lambda: ready.append(1), "report_end": lambda *_: None}

    without_artifacts = ResultCache(world.jobs, lambda tag, limit, beside: world.rows, None, **fields)  # type: ignore[arg-type]
    without_results = ResultCache(world.jobs, None, None, **fields)  # type: ignore[arg-type]

    assert without_artifacts.find(world.task()) is not None
    assert without_results.find(world.task()) is None


def test_a_damaged_row_of_another_run_makes_the_task_run(world: World) -> None:
    def damaged(tag: str, limit: int, beside: int) -> list[Row]:
        raise CodecError("a row cannot be read")

    cache = ResultCache(world.jobs, damaged, None, on_ready=lambda: None, report_end=lambda *_: None)  # type: ignore[arg-type]

    assert cache.find(world.task()) is None


# -- large files -----------------------------------------------------------------------------------------------------


def test_a_child_reads_what_is_large_and_the_task_is_looked_for_again(world: World) -> None:
    large = world.write("large", b"x" * (LOOP_BYTES_MAX + 1))
    world.keep(5)
    running = world.task(reads={"l": "large", "again": "large"})

    with pytest.raises(NotReady):
        world.cache.find(running)
    with pytest.raises(NotReady):
        world.cache.find(running)
    assert [paths for paths, _ in world.jobs.calls] == [[large]]
    world.jobs.answer()

    assert world.ready == 1
    found = world.cache.find(running)
    assert found is not None and found.reused_run_id == 5
    # Another task reads nothing again.
    world.cache.find(world.task(reads={"l": "large"}, token=2))
    assert world.jobs.calls == []


def test_a_large_file_that_nobody_touched_since_it_was_written_is_not_read_again(world: World) -> None:
    world.write("large", b"x" * (LOOP_BYTES_MAX + 1))
    world.keep(5, files=(world.record("large"),))

    found = world.cache.find(world.task(files={"large": "large"}))

    assert found is not None and found.reused_run_id == 5
    assert world.jobs.calls == []


def test_a_large_file_whose_time_is_not_trusted_is_read_once_for_a_task(world: World) -> None:
    path = world.write("large", b"x" * (LOOP_BYTES_MAX + 1))
    # A time in the future is never old enough.
    os.utime(path, ns=(10**19 // 2, 10**19 // 2))
    world.keep(5)
    running = world.task(reads={"l": "large"})
    with pytest.raises(NotReady):
        world.cache.find(running)

    world.jobs.answer()

    found = world.cache.find(running)
    assert found is not None and found.reused_run_id == 5
    assert world.jobs.calls == []


def test_a_small_file_beside_a_large_one_that_is_known_is_read_at_once(world: World) -> None:
    world.write("large", b"x" * (LOOP_BYTES_MAX + 1))
    world.write("small")
    world.keep(5)
    with pytest.raises(NotReady):
        world.cache.find(world.task(reads={"l": "large"}))
    world.jobs.answer()

    found = world.cache.find(world.task(reads={"l": "large", "s": "small"}, token=2))

    assert found is not None and found.reused_run_id == 5
    assert world.jobs.calls == []


@pytest.mark.parametrize("answer", [{"exception": "MemoryError"}, {"output": None}])
def test_a_file_that_a_child_could_not_read_makes_the_task_run(world: World, answer: dict[str, Any]) -> None:
    world.write("large", b"x" * (LOOP_BYTES_MAX + 1))
    world.keep(5)
    running = world.task(reads={"l": "large"})
    with pytest.raises(NotReady):
        world.cache.find(running)

    world.jobs.answer(**answer)

    assert world.cache.find(running) is None
    assert (world.asked, running.fingerprint) == ([], "")


def test_an_answer_for_a_task_that_was_forgotten_wakes_nobody(world: World) -> None:
    world.write("large", b"x" * (LOOP_BYTES_MAX + 1))
    for forget in (lambda running: world.cache.forget(running), lambda running: world.cache.clear()):
        running = world.task(reads={"l": "large"})
        with pytest.raises(NotReady):
            world.cache.find(running)
        forget(running)
        world.jobs.answer(output=[None])

    assert world.ready == 0


def test_a_child_that_dies_leaves_the_files_unread(world: World) -> None:
    world.write("large", b"x" * (LOOP_BYTES_MAX + 1))
    running = world.task(reads={"l": "large"})
    with pytest.raises(NotReady):
        world.cache.find(running)

    world.jobs.calls.pop()[1](None)

    assert (world.cache.find(running), world.ready) == (None, 1)


# -- after a task ----------------------------------------------------------------------------------------------------


def recorded(world: World, running: RunningTask, report: TaskEnded | None = None) -> TaskEnded:
    found = world.cache.record(running, report or done())
    assert found is not None
    return found


def test_a_result_is_recorded_with_its_files_and_its_fingerprint(world: World) -> None:
    world.write("out", "one")
    running = world.task(files={"o": "out"})
    running.fingerprint = "tag"

    found = recorded(world, running)

    assert found.fingerprint == "tag"
    assert found.files == (replace(world.record("out"), name="o"),)


def test_nothing_is_recorded_of_a_failure_or_of_a_task_without_files_that_is_not_reused(world: World) -> None:
    failed, plain = world.task(), world.task(reuse=None)
    failed.fingerprint = plain.fingerprint = "tag"

    assert recorded(world, failed, done(outcome=Outcome(3))).fingerprint == ""
    assert recorded(world, plain).fingerprint == ""


def test_files_are_recorded_also_of_a_task_that_is_not_reused(world: World) -> None:
    world.write("out")

    assert [one.name for one in recorded(world, world.task(reuse=None, files={"o": "out"})).files] == ["o"]


@pytest.mark.parametrize("files", [{"o": "gone"}, {"o": "out", "p": "gone"}, {"o": "out", "p": "pipe"}])
def test_nobody_takes_over_a_result_of_which_a_file_is_gone_or_cannot_be_read(
    world: World, files: dict[str, str]
) -> None:
    world.write("out")
    os.mkfifo(world.folder / "pipe")
    running = world.task(files=files)
    running.fingerprint = "tag"

    assert recorded(world, running).fingerprint == ""


@pytest.mark.parametrize(
    ("before", "after", "is_kept"),
    [("one", "one", True), ("one", "two", False), ("one", None, False), (None, None, True), (None, "one", False)],
)
def test_nobody_takes_over_a_result_whose_inputs_changed_while_it_ran(
    world: World, before: str | None, after: str | None, is_kept: bool
) -> None:
    if before is not None:
        world.write("in", before)
    running = world.task(reads={"i": "in"})
    world.cache.find(running)
    if after is not None:
        world.write("in", after)
    elif before is not None:
        os.unlink(world.folder / "in")

    assert bool(recorded(world, running).fingerprint) == is_kept


def test_nobody_takes_over_a_result_if_what_was_not_there_cannot_be_read_now(world: World) -> None:
    running = world.task(reads={"i": "in"})
    world.cache.find(running)
    os.mkfifo(world.folder / "in")

    assert recorded(world, running).fingerprint == ""


def test_large_files_are_recorded_by_a_child_and_reported_then(world: World) -> None:
    large = world.write("large", b"x" * (LOOP_BYTES_MAX + 1))
    inner = world.write("in", "one")
    running = world.task(reads={"i": "in"}, files={"l": "large"})
    world.cache.find(running)
    report = done(output=1)

    assert world.cache.record(running, report) is None
    assert [*world.cache.storing] == [running]
    # What it has read is known still, and not read again.
    assert [paths for paths, _ in world.jobs.calls] == [[large]]
    assert inner in running.input_hashes
    world.jobs.answer()

    ((whose, found),) = world.reported
    assert (whose is running, found.output, found.fingerprint) == (True, 1, running.fingerprint)
    assert [(one.name, one.path, one.size) for one in found.files] == [("l", "large", LOOP_BYTES_MAX + 1)]
    assert [*world.cache.storing] == []


def test_a_task_that_was_forgotten_while_its_files_were_read_is_not_reported(world: World) -> None:
    world.write("large", b"x" * (LOOP_BYTES_MAX + 1))
    world.cache.record(world.task(files={"l": "large"}), done())

    world.cache.clear()
    world.jobs.answer()

    assert world.reported == []


def test_a_task_of_a_run_without_a_folder_has_absolute_paths(world: World) -> None:
    path = world.write("out")
    running = world.task(files={"o": path.lstrip("/")})
    running = RunningTask(replace(running.lease, task=replace(running.lease.task, home="")), running.lease, None)  # type: ignore[arg-type]

    assert [one.sha256 for one in recorded(world, running).files] == [world.record("out").sha256]
