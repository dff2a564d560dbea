"""What a task gives and reads where it is large: kept under a name of its attempt's own, fetched before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.work import Work

from mulligan.core.effects.tasks import Task
from mulligan.core.model.artifacts import (
    Artifact,
    Format,
    describe_artifact,
    is_artifact,
    make_reference,
    parse_reference,
)
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded, TaskInterrupted
from mulligan.errors import StoreRefused, StoreUnavailable
from mulligan.ports import Artifacts
from mulligan.store.artifact_files import ArtifactFiles
from mulligan.testing.clock import START
from mulligan.worker.outputs.output_storage import ROW_BYTES_MAX, FileToStore, OutputStorage, artifact_folder_of


@pytest.fixture
def files(tmp_path: Path) -> ArtifactFiles:
    return ArtifactFiles(tmp_path / "artifacts")


@pytest.fixture
def keeping(tmp_path: Path, files: ArtifactFiles) -> Iterator[Work]:
    """A worker with a place for artifacts."""
    found = Work(tmp_path, artifacts=files)
    yield found
    found.close()


def task(place: str = "build", **fields: Any) -> Task:
    return Task(17, place, 2, "shell", {"text": "true"}, "nightly", "v1", "build", 3, **fields)


def ended(output: Any, outcome: Outcome = Outcome()) -> TaskEnded:  # noqa: B008 - frozen
    return TaskEnded(START, "build", 2, outcome, output)


# -- outward ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "is_kept"),
    [
        # As JSON, a text has two quotes more.
        ("x" * 65_534, False),
        ("x" * 65_535, True),
        ("ü" * 32_767, False),
        ("ü" * 32_768, True),
        ("\x01" * 10_922, False),
        ("\x01" * 10_923, True),
        ([1] * 32_767, False),
        ([1] * 32_768, True),
        ([1.5] * 16_383, False),
        ({"a": "x" * 65_528}, False),
        ({"a": "x" * 65_529}, True),
        (None, False),
        (True, False),
        (0, False),
        ("", False),
        ([], False),
        # It says itself that it is one, and is none.
        ({"$artifact": 1}, True),
        ([{"deep": {"$artifact": {}}}], True),
        ({"$artifact": 1, "more": 2}, False),
        (["$artifact"], False),
        ("$artifact", False),
    ],
)
def test_what_is_over_64_kib_as_json_or_looks_like_a_reference_is_kept(
    files: ArtifactFiles, output: Any, is_kept: bool
) -> None:
    told = OutputStorage(files).store(task(), ended(output))

    assert (told.output != output) is is_kept
    if is_kept:
        kept = parse_reference(told.output)
        data = output.encode() if isinstance(output, str) else msgspec.json.encode(output)
        format: Format = "text" if isinstance(output, str) else "json"
        assert kept == describe_artifact(f"17/build/3/2/output.{'txt' if format == 'text' else 'json'}", data, format)
        assert files.fetch(kept) == data


def test_the_name_says_which_run_place_visit_and_attempt_and_fits_any_file_system(files: ArtifactFiles) -> None:
    told = OutputStorage(files).store(task("check[3].on_failure@2.0"), ended("x" * 70_000))
    odd = OutputStorage(files).store(task("ü/.."), ended("x" * 70_000))

    assert parse_reference(told.output).name == "17/check[3].on_failure@2.0/3/2/output.txt"
    assert parse_reference(odd.output).name == "17/%C3%BC%2F../3/2/output.txt"
    assert files.fetch(parse_reference(odd.output)) == b"x" * 70_000


PLACES = st.text(max_size=6) | st.text("ab.", min_size=150, max_size=200) | st.sampled_from(("%2E", ".", "..", "a/b"))
WHERES = st.tuples(st.integers(1, 3), PLACES, st.integers(1, 3), st.integers(1, 3))


@given(WHERES, WHERES)
def test_two_attempts_never_share_a_folder(one: tuple[int, str, int, int], other: tuple[int, str, int, int]) -> None:
    names = [
        artifact_folder_of(Task(run_id, place, attempt, "shell", {}, "nightly", "v1", "build", visit))
        for run_id, place, visit, attempt in (one, other)
    ]

    assert (names[0] == names[1]) is (one == other)
    for name in names:
        _, place, _, _ = name.split("/")
        assert place not in (".", "..")
        assert len(place.encode()) <= 200


def test_without_a_place_for_them_large_outputs_stay_where_they_are() -> None:
    told = ended("x" * 70_000)

    assert OutputStorage(None).store(task(), told) is told


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        (2**70, "it contains a number of more than 64 bits, or is nested too deep"),
        ([[2**70]], "it contains a number of more than 64 bits, or is nested too deep"),
        (["\ud800"], "it contains a lone surrogate"),
        ("\ud800" * 20_000, "it contains a lone surrogate"),
    ],
)
def test_what_no_event_can_hold_is_no_result(files: ArtifactFiles, output: Any, problem: str) -> None:
    told = OutputStorage(files).store(task(), ended(output))

    assert told == ended(None, Outcome(output_error=f"its output cannot be stored: {problem}"))


def test_errors_that_no_event_can_hold_are_said_to_be_so(files: ArtifactFiles) -> None:
    told = OutputStorage(files).store(task(), ended("fine", Outcome(reported=({"details": 2**70},))))

    problem = "cannot be stored: it contains a number of more than 64 bits, or is nested too deep"
    assert told == ended(None, Outcome(report_error=problem))


class NoRoom:
    """Artifacts for which there is no room."""

    def keep(self, name: str, data: bytes, format: Format) -> Artifact:
        raise StoreRefused("no space left on device")

    def keep_file(self, artifact: Artifact, path: str) -> Artifact:
        raise StoreRefused("no space left on device")

    def path(self, artifact: Artifact) -> str:
        return ""


def test_where_there_is_no_room_the_attempt_has_failed_and_says_so() -> None:
    full: Artifacts = NoRoom()  # type: ignore[assignment]

    told = OutputStorage(full).store(task(), ended("x" * 70_000, Outcome(is_stopped=True)))

    message = "its output cannot be stored: no space left on device"
    assert told == ended(None, Outcome(exit_code=None, code="EXCEPTION", message=message, is_stopped=True))


@pytest.mark.parametrize("size", [1, ROW_BYTES_MAX + 1], ids=["no room", "too large"])
def test_a_file_that_cannot_be_stored_does_not_stay_in_the_folder_of_the_worker(tmp_path: Path, size: int) -> None:
    full: Artifacts = NoRoom()  # type: ignore[assignment]
    paths = [tmp_path / "large-1", tmp_path / "large-2"]
    for path in paths:
        path.touch()
    kept = [FileToStore(str(path), path.name, Artifact("new/1", size, "", "file")) for path in paths]

    report = OutputStorage(full).store(task(), ended(None), kept)

    assert report.artifacts == ()
    assert list(tmp_path.iterdir()) == []


class Away:
    """Artifacts of a store that does not answer until `is_back`."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts
        self.is_back = False

    def __getattr__(self, name: str) -> Any:
        if not self.is_back:
            raise StoreUnavailable("the server does not answer")
        return getattr(self._artifacts, name)


@pytest.fixture
def away(files: ArtifactFiles) -> Away:
    return Away(files)


@pytest.fixture
def waiting(tmp_path: Path, away: Away) -> Iterator[Work]:
    """Hands whose store is away."""
    work = Work(tmp_path, artifacts=away)
    yield work
    work.close()


def told_to_wait(work: Work) -> str:
    """What is said in the place of a report; what ends until then has nothing large."""
    with pytest.raises(StoreUnavailable) as unavailable:
        work.reports()
    return unavailable.value.message


def test_while_the_store_is_away_what_is_large_waits_to_be_kept_and_its_lease_is_held(
    waiting: Work, away: Away
) -> None:
    lease = waiting.shell("seq 1 20000", capture="lines")
    waiting.start(lease)

    said = told_to_wait(waiting)
    held, is_busy = list(waiting.executor.running), waiting.executor.is_busy
    away.is_back = True
    (report,) = waiting.reports()

    assert said == "the server does not answer"
    assert (held, is_busy) == ([lease], False)
    assert isinstance(report, TaskEnded) and is_artifact(report.output)
    assert waiting.executor.running == []


def test_what_is_dropped_meanwhile_is_told_to_nobody(waiting: Work, away: Away) -> None:
    waiting.start(waiting.shell("seq 1 20000", capture="lines"))
    told_to_wait(waiting)

    waiting.executor.drop_all()
    away.is_back = True

    assert waiting.executor.collect(0.0) == []
    assert waiting.executor.running == []


def test_both_kinds_of_tasks_have_their_large_outputs_kept(keeping: Work, files: ArtifactFiles) -> None:
    shell = keeping.run_shell("seq 1 20000", capture="lines")
    python = keeping.run_python("def main(): return 'x' * 70_000")

    assert len(msgspec.json.decode(files.fetch(parse_reference(shell.output)))) == 20_000
    assert files.fetch(parse_reference(python.output)) == b"x" * 70_000


# -- inward -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def text(files: ArtifactFiles) -> dict[str, Any]:
    return make_reference(files.keep("17/text/1/1/output.txt", b"hello", "text"))


def test_a_task_gets_what_is_in_them_wherever_it_stands(
    keeping: Work, files: ArtifactFiles, text: dict[str, Any], tmp_path: Path
) -> None:
    rows = make_reference(files.keep("17/rows/1/1/output.json", b"[1,[2]]", "json"))
    folder = make_reference(files.keep("17/where/1/1/output.txt", str(tmp_path).encode(), "text"))

    fed = keeping.run_shell('cat; echo " $WHO"; pwd', stdin=text, env={"WHO": rows}, cwd=folder)
    called = keeping.run_python("def main(a, b): return [a, b]", {"a": [text, {"deep": rows}], "b": 1})

    assert fed.output == f"hello [1,[2]]\n{tmp_path}"
    assert called.output == [["hello", {"deep": [1, [2]]}], 1]


def test_what_is_in_one_is_handed_over_and_not_looked_into(keeping: Work, files: ArtifactFiles) -> None:
    inner = {"$artifact": {"name": "17/never/1/1/output.json", "size": 1, "sha256": "", "format": "json"}}
    odd = make_reference(files.keep("17/odd/1/1/output.json", msgspec.json.encode(inner), "json"))

    told = keeping.run_python("def main(a): return a['$artifact']['name']", {"a": odd})

    assert told.output == "17/never/1/1/output.json"


def test_one_that_does_not_fit_into_the_environment_is_refused_as_any_value(
    keeping: Work, files: ArtifactFiles
) -> None:
    large = make_reference(files.keep("17/large/1/1/output.txt", b"x" * 100_000, "text"))

    told = keeping.run_shell("true", env={"LARGE": large})

    assert told.outcome.code == "INPUT_INVALID"
    assert told.outcome.message.startswith("the value of 'LARGE' has 100000 bytes, and an environment variable holds")


def test_one_that_is_gone_is_an_input_that_cannot_be_had(keeping: Work, files: ArtifactFiles, text: Any) -> None:
    files.remove(["17/text/1/1/output.txt"])

    told = keeping.run_shell("cat", stdin=text)

    message = "a value that it reads is not available: artifact '17/text/1/1/output.txt' is gone"
    assert told.outcome == Outcome(exit_code=None, code="INPUT_INVALID", message=message)


def test_while_the_store_is_away_a_task_that_reads_one_waits_and_is_started_when_it_is_back(
    waiting: Work, away: Away, text: dict[str, Any]
) -> None:
    waiting.start(waiting.shell("cat", stdin=text))

    said = told_to_wait(waiting)
    away.is_back = True
    (report,) = waiting.reports()

    assert said == "the server does not answer"
    assert isinstance(report, TaskEnded) and report.output == "hello"


def test_a_task_that_waits_for_the_store_can_be_stopped(waiting: Work, text: dict[str, Any]) -> None:
    waiting.start(waiting.shell("cat", stdin=text))
    told_to_wait(waiting)

    waiting.executor.stop_all(0.0)
    (report,) = waiting.reports()

    assert isinstance(report, TaskInterrupted)


def test_a_worker_without_a_place_for_them_hands_a_reference_on_as_it_is(tmp_path: Path, text: Any) -> None:
    work = Work(tmp_path)
    try:
        told = work.run_python("def main(a): return a", {"a": text})
    finally:
        work.close()

    assert is_artifact(told.output)
