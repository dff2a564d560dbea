"""Files that a step keeps: stored as artifacts, part of its output, and paths for later steps."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.work import Work

from mulligan.core.deciding.classify import classify
from mulligan.core.model.artifacts import KEY, Artifact, is_artifact, parse_reference
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded
from mulligan.core.model.workflow import Secret
from mulligan.errors import StoreUnavailable
from mulligan.store.artifact_files import ArtifactFiles
from mulligan.testing.clock import JumpingClock
from mulligan.testing.memory.artifact_memory import ArtifactMemory

# By day: none of these tests is about how a child starts.
pytestmark = pytest.mark.usefixtures("forked_children")

SECRET = "hunter2&co-never-shown"
KEEP = "import mulligan\ndef main():\n  open('model.bin', 'wb').write(b'\\0weights')\n"


class Sometimes:
    """Artifacts whose store is not available now and then."""

    def __init__(self, artifacts: ArtifactFiles) -> None:
        self._artifacts = artifacts
        self.are_missing = 0

    def keep_file(self, artifact: Artifact, path: str) -> Artifact:
        if self.are_missing:
            self.are_missing -= 1
            raise StoreUnavailable("away")
        return self._artifacts.keep_file(artifact, path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._artifacts, name)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", SECRET)


@pytest.fixture
def files(tmp_path: Path) -> Sometimes:
    return Sometimes(ArtifactFiles(tmp_path / "artifacts"))


@pytest.fixture
def work(tmp_path: Path, files: Sometimes) -> Iterator[Work]:
    found = Work(tmp_path, artifacts=files)
    yield found
    assert scratch_of(found) == []
    found.close()
    assert found.remaining() == []


def scratch_of(work: Work) -> list[str]:
    """What is left of kept files in the folder of the worker."""
    names = os.listdir(f"{work.home}/workers/{work.name}")
    return [name for name in names if "artifacts" in name or name.startswith("large-")]


def knowing(lease_fields: dict[str, Any] | None = None) -> dict[str, Any]:
    secret = {"secrets": {"token": Secret(env="DEPLOY_TOKEN")}, "late": {"env.TOKEN": [{"secret": "secrets.token"}]}}
    return {**secret, **(lease_fields or {})}


def stored(report: TaskEnded) -> list[Artifact]:
    return [parse_reference(one) for one in report.artifacts]


def test_a_kept_file_is_an_artifact_of_the_attempt(work: Work, files: Sometimes) -> None:
    report = work.run_python(KEEP + "  mulligan.artifact('model.bin')\n  open('model.bin', 'w').write('later')")

    (artifact,) = stored(report)
    assert (artifact.name, artifact.format) == ("7/step1/1/1/model.bin", "file")
    assert files.fetch(artifact) == b"\0weights"
    assert os.stat(files.path(artifact)).st_mode & 0o777 == 0o400


def test_it_may_be_the_output_or_part_of_it(work: Work) -> None:
    code = KEEP + "  kept = mulligan.artifact('model.bin', name='best.bin')\n  return {'accuracy': 0.9, 'model': kept}"

    report = work.run_python(code)

    (reference,) = report.artifacts
    assert report.output == {"accuracy": 0.9, "model": reference}
    assert reference[KEY]["name"] == "7/step1/1/1/best.bin"


def test_a_later_step_gets_the_path_of_a_file_that_it_cannot_change(work: Work) -> None:
    reference = work.run_python(KEEP + "  return mulligan.artifact('model.bin')").output

    python = work.run_python(
        "def main(model): return [model.read_bytes().decode('latin1'), model.name]", {"model": reference}
    )
    shell = work.run_shell('basename "$_model"; wc -c < "$_model"', env={"_model": reference})

    assert python.output == ["\0weights", "model.bin"]
    assert shell.output == "model.bin\n8"


def test_a_step_may_return_a_file_that_it_was_given(work: Work) -> None:
    reference = work.run_python(KEEP + "  return mulligan.artifact('model.bin')").output

    report = work.run_python("def main(model): return {'same': model}", {"model": reference})

    assert (report.output, report.artifacts) == ({"same": reference}, ())


def test_a_program_of_a_shell_step_keeps_files_too(work: Work) -> None:
    code = 'import mulligan; mulligan.artifact("plot.svg")'

    report = work.run_shell(f"echo x > plot.svg; {sys.executable} -c '{code}'")

    assert [one.name for one in stored(report)] == ["7/step1/1/1/plot.svg"]


def test_files_of_a_failed_attempt_are_kept(work: Work) -> None:
    report = work.run_python(KEEP + "  mulligan.artifact('model.bin')\n  raise ValueError('no')")

    assert report.outcome.message == "ValueError: no"
    assert len(report.artifacts) == 1


def test_two_files_of_one_name_are_both_kept(work: Work) -> None:
    report = work.run_python(KEEP + "  return [mulligan.artifact('model.bin'), mulligan.artifact('model.bin')]")

    assert [one.name for one in stored(report)] == ["7/step1/1/1/model.bin", "7/step1/1/1/model-2.bin"]
    assert report.output == list(report.artifacts)


def test_two_files_of_one_name_without_an_ending_are_both_kept(work: Work) -> None:
    report = work.run_python(KEEP + "  return [mulligan.artifact('model.bin', name='model') for _ in range(2)]")

    assert [one.name for one in stored(report)] == ["7/step1/1/1/model", "7/step1/1/1/model-2"]


def test_a_file_whose_name_is_not_utf_8_is_kept(work: Work) -> None:
    code = "import os, mulligan\ndef main():\n  path = os.fsdecode(b'caf\\xe9.txt')\n  open(path, 'w').close()\n"

    report = work.run_python(code + "  return mulligan.artifact(path)")

    assert [one.name for one in stored(report)] == ["7/step1/1/1/caf%3F.txt"]
    assert report.output == report.artifacts[0]


def test_a_file_that_was_lost_is_not_an_output(work: Work) -> None:
    code = (
        "  found = mulligan.artifact('model.bin')\n  (copy,) = glob.glob(os.environ['MULLIGAN_ARTIFACTS'] + '-*')\n"
        "  os.unlink(copy)\n  return found"
    )

    report = work.run_python("import glob, os\n" + KEEP + code)

    assert report.output is None
    assert "which the step has not kept, or has changed" in report.outcome.output_error


def test_a_store_that_is_away_gets_them_later(work: Work, files: Sometimes) -> None:
    files.are_missing = 2
    work.start(work.python(KEEP + "  return [mulligan.artifact('model.bin'), mulligan.artifact('model.bin')]"))

    reports: list[Any] = []
    while not reports:
        try:
            reports = work.executor.collect(1.0)
        except StoreUnavailable:
            continue

    ((_, report),) = reports
    assert report.output == list(report.artifacts)


def test_a_store_without_files_gives_a_later_step_a_copy(tmp_path: Path) -> None:
    work = Work(tmp_path, artifacts=ArtifactMemory({}, JumpingClock()))
    try:
        reference = work.run_python(KEEP + "  return mulligan.artifact('model.bin')").output

        python = work.run_python("def main(model): return model.suffix", {"model": reference})
        shell = work.run_shell('wc -c < "$_model"', env={"_model": reference})

        assert (python.output, shell.output, scratch_of(work)) == (".bin", "8", [])
    finally:
        work.close()


def test_a_file_that_has_changed_is_refused(work: Work, files: Sometimes) -> None:
    reference = work.run_python(KEEP + "  return mulligan.artifact('model.bin')").output
    path = files.path(parse_reference(reference))
    os.chmod(path, 0o600)
    Path(path).write_bytes(b"\0changed"[:8])

    report = work.run_python("def main(model): pass", {"model": reference})
    Path(path).write_bytes(b"")
    shell = work.run_shell('cat "$_model"', env={"_model": reference})

    assert "its content has changed" in report.outcome.message
    assert "its size has changed" in shell.outcome.message


@pytest.mark.parametrize(
    "code",
    [
        # The whole output is stored, and its content is never interpreted.
        "def main(): return {'$artifact': {'name': '1/other/1/1/x', 'size': 1, 'sha256': '', 'format': 'file'}}",
        KEEP + "  return {'$artifact': {'name': 'new/1-1', 'size': 8, 'sha256': '', 'format': 'file'}}",
    ],
)
def test_a_step_cannot_make_up_a_reference(work: Work, code: str) -> None:
    report = work.run_python(code)

    assert is_artifact(report.output)
    assert report.output[KEY]["name"] == "7/step1/1/1/output.json"


def test_references_of_both_kinds_are_refused(work: Work) -> None:
    forged = "{'$artifact': {'name': '1/other/1/1/x', 'size': 1, 'sha256': '', 'format': 'file'}}"

    report = work.run_python(KEEP + f"  return [mulligan.artifact('model.bin'), {forged}]")

    assert report.outcome.output_error == (
        "its output cannot be stored: it has the key '$artifact' in it, which is reserved for artifacts"
    )


def test_a_large_output_cannot_have_a_file_in_it(work: Work) -> None:
    report = work.run_python(KEEP + "  return [mulligan.artifact('model.bin'), 'x' * 2_000_000]")

    failure, _ = classify(report.outcome)
    assert failure is not None
    assert failure.code == "OUTPUT_INVALID"
    assert "beside the files that it refers to; the limit is" in failure.message


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("'missing'", "FileNotFoundError: [Errno 2] No such file or directory: 'missing'"),
        ("'.'", "ValueError: '.' is not a file: an artifact is one file, so pack a folder first (tar, zip)"),
        (
            "'model.bin', name='../x'",
            "ValueError: the name of an artifact must be the name of a file, without folders: '../x'",
        ),
    ],
)
def test_what_is_no_file_is_refused(work: Work, call: str, message: str) -> None:
    report = work.run_python(KEEP + f"  mulligan.artifact({call})")

    assert report.outcome.message == message


def test_a_file_with_a_secret_is_not_kept(work: Work, files: Sometimes) -> None:
    code = (
        "import mulligan, os\ndef main():\n  open('x', 'w').write('a' + os.environ['TOKEN'])\n  mulligan.artifact('x')"
    )

    report = work.run(work.python(code, **knowing()))

    assert report.outcome.output_error == "its artifact 'x' contains a secret of the run, so it is not kept"
    assert report.artifacts == ()
    assert list(files.records()) == []


def test_a_file_without_a_secret_of_a_step_that_knows_one_is_kept(work: Work) -> None:
    report = work.run(work.python(KEEP + "  return mulligan.artifact('model.bin')", **knowing()))

    assert report.outcome == Outcome()
    assert report.output == report.artifacts[0]


def test_a_process_that_is_killed_while_it_copies_leaves_nothing(work: Work) -> None:
    code = (
        "import mulligan, os\nfrom mulligan import step_context\n"
        "def main():\n  open(step_context.new_artifact_path('.x'), 'w').write('half')\n  os.kill(os.getpid(), 9)"
    )

    report = work.run_python(code)

    assert (report.outcome.signal, report.artifacts) == (9, ())


def test_a_name_with_other_characters_is_spelled(work: Work) -> None:
    report = work.run_python(KEEP + "  mulligan.artifact('model.bin', name='über plan.bin')")

    assert [one.name for one in stored(report)] == ["7/step1/1/1/%C3%BCber%20plan.bin"]
