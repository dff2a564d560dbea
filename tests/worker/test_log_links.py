"""Paths of the user's that lead to the logs of an attempt."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.work import Work


def test_each_path_leads_to_what_the_attempt_wrote(work: Work) -> None:
    work.run_shell("echo out; echo err >&2", logs={"stdout": "a/b/job.o", "stderr": str(work.folder / "job.e")})

    assert (work.folder / "a/b/job.o").read_text() == "out\n"
    assert (work.folder / "job.e").read_text() == "err\n"
    assert os.readlink(work.folder / "a/b/job.o").startswith(str(work.home))


def test_they_lead_there_while_it_runs(work: Work) -> None:
    os.mkfifo(work.folder / "pipe")
    work.start(work.shell("echo first; read go < pipe", logs={"stdout": "job.o", "stderr": "job.e"}))

    work.wait_for(lambda: (work.folder / "job.o").exists() and (work.folder / "job.o").read_text() == "first\n")

    (work.folder / "pipe").write_text("go\n")
    work.reports()
    assert (work.folder / "job.e").read_text() == ""


def text(path: Path) -> str:
    """What is there; an attempt that wrote nothing has no file, unless it took its time."""
    return path.read_text() if os.path.lexists(path) else ""


def test_what_an_attempt_did_not_write_leads_to_no_attempt_before_it(work: Work) -> None:
    work.run_shell("echo one; echo two >&2", place="a", attempt=1, logs={"stdout": "job.o", "stderr": "job.e"})

    work.run_shell("echo three", place="a", attempt=2, logs={"stdout": "job.o", "stderr": "job.e"})

    assert text(work.folder / "job.o") == "three\n"
    assert text(work.folder / "job.e") == ""


def test_a_python_step_has_them_too(work: Work) -> None:
    work.run_python("def main(): print('hi')", logs={"stdout": "job.o", "stderr": "job.e"})

    assert text(work.folder / "job.o") == "hi\n"
    assert text(work.folder / "job.e") == ""


def test_the_next_attempt_takes_the_path_over(work: Work) -> None:
    work.run_shell("echo one", place="a", attempt=1, logs={"stdout": "job.o"})

    work.run_shell("echo two", place="a", attempt=2, logs={"stdout": "job.o"})

    assert (work.folder / "job.o").read_text() == "two\n"
    assert sorted(path.name for path in work.folder.iterdir()) == ["job.o"]


def test_a_path_that_cannot_be_made_is_a_warning_and_no_failure(work: Work) -> None:
    (work.folder / "file").write_text("mine")

    ended = work.run_shell("echo done; echo too >&2", logs={"stdout": "file/job.o", "stderr": "file"})

    assert ended.output == "done"
    assert ended.outcome.exit_code == 0
    assert ended.outcome.log_warning == (
        "cannot link 'file/job.o' to its stdout: not a directory; "
        "cannot link 'file' to its stderr: there is a file that is not a link"
    )
    assert (work.folder / "file").read_text() == "mine"


@pytest.mark.parametrize("path", ["", "  ", "a\0b", None, 5, {"a": 1}])
def test_what_is_no_path_is_a_warning(work: Work, path: object) -> None:
    ended = work.run_shell("true", logs={"stdout": path})

    assert ended.outcome.log_warning == f"cannot link '{path}' to its stdout: it is not a path"


def test_a_step_without_them_leaves_no_trace_where_the_run_was_called(work: Work) -> None:
    work.run_shell("echo one")

    assert list(Path(work.folder).iterdir()) == []
