"""Runs of programs that go on with an edited program: what is undone, what is made again, and what is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

import mulligan
from mulligan import Run

STEPS = """
from pathlib import Path
import time
from mulligan import StepError, gather, program, step

def leave(text):
    with open("lines", "a") as lines:
        lines.write(text + "\\n")

@step
def note(text: str) -> str:
    leave(text)
    return text

@note.undo
def forget(output: str) -> None:
    leave("not " + output)

@step
def plain(text: str) -> str:
    leave(text)
    if text.startswith("bad"):
        raise StepError("BAD", text)
    return text

@step
def large(text: str) -> str:
    leave(text)
    return text * 100_000

@step
def file(text: str) -> Path:
    leave(text)
    path = Path(text + ".txt")
    path.write_text(text)
    return path

@step
def slow() -> None:
    time.sleep(60)

@program
def edited():
"""


class Edited:
    """A run in a folder of its own, whose program is edited."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run: Run | None = None

    def write(self, *body: str, inputs: str = "") -> str:
        path = self.folder / "edited.py"
        path.write_text(
            STEPS.replace("edited()", f"edited({inputs})") + "".join(f"    {line}\n" for line in body), encoding="utf-8"
        )
        return str(path)

    def start(self, *body: str) -> Run:
        path = self.write(*body)
        self.run = mulligan.run(path, home=self.folder / "home", show=False)
        return self.run

    def retry(self, *body: str, inputs: str = "", **options: object) -> Run:
        assert self.run is not None
        (self.folder / "lines").unlink(missing_ok=True)
        return self.run.retry(flow=self.write(*body, inputs=inputs), **options)  # type: ignore[arg-type]

    @property
    def lines(self) -> list[str]:
        path = self.folder / "lines"
        return path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Edited:
    monkeypatch.chdir(tmp_path)
    return Edited(tmp_path)


def test_what_was_undone_is_made_again_and_what_was_not_is_kept(edited: Edited) -> None:
    edited.start("plain('a')", "note('b')", "plain('bad')")

    run = edited.retry("plain('a')", "note('b')", "plain('good')")

    assert run.status == "completed", run.explain()
    assert edited.lines == ["b", "good"]


@pytest.mark.nightly
def test_a_second_and_a_third_correction_keep_what_the_one_before_has_done(edited: Edited) -> None:
    edited.start("plain('a')", "plain('bad 1')")
    edited.retry("plain('a')", "plain('b')", "plain('bad 2')")
    second = edited.lines

    edited.retry("plain('a')", "plain('b')", "plain('c')", "plain('bad 3')")
    third = edited.lines
    run = edited.retry("plain('a')", "plain('b')", "plain('c')", "return plain('d')")

    assert run.outputs == {"result": "d"}, run.explain()
    assert (second, third, edited.lines) == (["b", "bad 2"], ["c", "bad 3"], ["d"])
    assert [name for name in run.steps if name != "edited"] == ["plain", "plain#2", "plain#3", "plain#4"]


@pytest.mark.nightly
def test_a_branch_keeps_its_calls_up_to_its_own_difference(edited: Edited) -> None:
    edited.start("found = gather(plain.call(text) for text in 'abc')", "plain('bad')", "return found")

    run = edited.retry("found = gather(plain.call(text) for text in 'axc')", "return found")

    assert run.outputs == {"result": ["a", "x", "c"]}, run.explain()
    assert edited.lines == ["x"]


def test_a_retry_runs_nothing_again_that_has_completed_behind_the_failure(edited: Edited) -> None:
    edited.start("try:", "    plain('bad')", "except Exception:", "    plain('a')", "    raise")

    run = edited.retry("try:", "    plain('good')", "finally:", "    plain('a')")

    assert run.status == "completed", run.explain()
    assert edited.lines == ["good"]


@pytest.mark.nightly
def test_a_correction_reads_large_results_and_files(edited: Edited) -> None:
    edited.start("text = large('a')", "found = file('b')", "plain(found.read_text())", "plain('bad')")

    run = edited.retry(
        "text = large('a')",
        "found = file('b')",
        "plain(found.read_text())",
        "return plain(str(len(text)))",
    )

    assert run.outputs == {"result": "100000"}, run.explain()
    assert edited.lines == ["100000"]


@pytest.mark.nightly
def test_a_corrected_program_may_have_a_new_input_with_a_default(edited: Edited) -> None:
    edited.start("plain('a')", "plain('bad')")

    run = edited.retry("plain(text)", "return plain('good')", inputs="text='a'")

    assert run.status == "completed", run.explain()
    assert edited.lines == ["good"]


@pytest.mark.nightly
def test_a_call_that_is_written_between_others_runs_alone(edited: Edited) -> None:
    edited.start("plain('a')", "plain('b')", "plain('bad')")

    run = edited.retry("plain('a')", "plain('x')", "plain('b')")

    assert run.status == "completed", run.explain()
    assert edited.lines == ["x"]


@pytest.mark.nightly
def test_a_call_that_the_corrected_program_does_not_make_is_no_step_any_more(edited: Edited) -> None:
    edited.start("note('a')", "plain('bad')")

    run = edited.retry("return 1")

    assert run.outputs == {"result": 1}, run.explain()
    assert list(run.steps) == ["edited"]
