"""Coverage of a program that is rehearsed: its cells against runs on the real engine, and what is unknown."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.programs import covered_programs as programs
from tests.programs.in_process import Run

from mulligan.analysis.coverage.results import Cell, Coverage, Verdict
from mulligan.core.state.state import State
from mulligan.errors import InputInvalid, Refused, UnknownStep
from mulligan.service.authoring.program_coverage import RehearsedProgram, read_program

FAKES = """
fetch: {output: [1, 2]}
load: {output: 5}
check: {output: true}
publish: {output: v1}
announce: {output: said}
count: {output: 3}
restore: {output: restored}
wait_event: {output: 7}
"""


def played(name: str, tmp_path: Path, fakes: str = FAKES) -> RehearsedProgram:
    file = tmp_path / "fakes.yaml"
    file.write_text(fakes)
    return read_program(f"{Path(programs.__file__).relative_to(Path.cwd())}:{name}", file)


@cache
def covered(name: str) -> Coverage:
    """With the fakes above. Several tests ask about the same program, and nothing of it changes."""
    with TemporaryDirectory() as folder:
        return played(name, Path(folder)).cover()


def cells(found: Coverage) -> dict[tuple[str, str], Cell]:
    return {(one.step, one.failure): one for one in found.cells}


def real_end(name: str, label: str, code: str) -> tuple[State, Verdict]:
    """How a run ends on the real engine, in which this call fails in this way each time."""
    programs.FAILING.clear()
    programs.FAILING[label] = code
    run = Run(getattr(programs, name), {}, {"approve": True, "paid": 7})
    try:
        state = run.drive()
    except AssertionError:
        state = run.state
    finally:
        programs.FAILING.clear()
    return state, _verdict(state, label)


def _verdict(state: State, label: str) -> Verdict:
    if state.run.status == "failed":
        return "fails"
    if state.run.status != "completed":
        return "parked"
    return "recovered" if state.places[label].status == "completed" else "handled"


NIGHTLY = ("fetch", "load", "load#2", "check", "publish", "count", "announce")


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("nightly", NIGHTLY),
        ("asking", ("load#last",)),
        ("beside", ("load", "check", "publish")),
    ],
)
def test_each_cell_says_what_the_engine_does_when_the_call_fails_like_that(name: str, labels: tuple[str, ...]) -> None:
    found = cells(covered(name))

    # A call that fails every time: in a run each of its attempts does. `check` is called again: see below.
    for label in labels:
        for code in ("EXCEPTION", "QUOTA"):
            if (label, code) not in found:
                continue
            case = found[label, code].cases[0 if label == "check" and name == "nightly" else -1]
            state, verdict = real_end(name, label, code)
            assert case.verdict == verdict, (label, code)
            assert case.attempts == state.places[label].attempt, (label, code)


def test_a_failure_that_goes_on_meets_the_call_again_that_the_program_makes() -> None:
    found = cells(covered("nightly"))["check", "EXCEPTION"]

    programs.FAILING.update(dict.fromkeys(("check", "check#2", "check#3"), "EXCEPTION"))
    status = Run(programs.nightly, {}, {}).drive().run.status
    programs.FAILING.clear()

    assert status == "failed"
    assert [case.verdict for case in found.cases] == ["handled", "handled", "fails"]


def test_the_path_and_what_lies_behind_a_failure_have_rows() -> None:
    found = covered("nightly")

    assert found.steps == (*NIGHTLY, "restore")
    assert cells(found)["restore", "EXCEPTION"].verdict == "fails"
    assert found.called_at["load"] == found.called_at["load#2"]


def test_a_call_whose_value_nobody_knows_is_unknown_until_it_has_a_fake(tmp_path: Path) -> None:
    fakes = "".join(line for line in FAKES.splitlines(keepends=True) if not line.startswith("restore"))

    found = played("nightly", tmp_path, fakes).cover()
    cell = cells(found)["count", "EXCEPTION"]

    assert cell.verdict == "unknown"
    assert (cell.cases[0].needs, cell.cases[0].at.partition(":")[0]) == ("restore", "covered_programs.py")
    assert "restore" not in found.steps
    assert any("'restore'" in one and "restore: {output: …}" in one for one in found.unknown)
    assert cells(covered("nightly"))["count", "EXCEPTION"].verdict == "handled"


def test_people_events_keys_and_values_are_played() -> None:
    found = cells(covered("asking"))

    assert {key: cell.verdict for key, cell in found.items() if key[1] not in ("WORKER_LOST", "OUT_OF_MEMORY")} == {
        ("approve", "APPROVAL_REFUSED"): "handled",
        ("approve", "APPROVAL_EXPIRED"): "handled",
        ("approve", "cancel"): "allowed",
        ("approve", "kill"): "recovered",
        ("wait_event", "TIMEOUT"): "handled",
        ("wait_event", "cancel"): "allowed",
        ("wait_event", "kill"): "recovered",
        ("load#last", "EXCEPTION"): "fails",
        ("load#last", "cancel"): "allowed",
        ("load#last", "kill"): "recovered",
        ("restore", "EXCEPTION"): "fails",
        ("restore", "cancel"): "allowed",
        ("restore", "kill"): "recovered",
    }


def test_the_calls_of_a_program_that_is_called_have_rows() -> None:
    found = covered("year")

    assert found.steps == ("month", "month/load", "month/load#2", "load")
    verdicts = {key: cell.verdict for key, cell in cells(found).items()}
    assert verdicts["month", "CHILD_FAILED"] == "handled"
    assert verdicts["month/load#2", "EXCEPTION"] == "handled"
    assert verdicts["load", "EXCEPTION"] == "fails"


def test_a_program_that_is_called_may_be_faked_itself(tmp_path: Path) -> None:
    found = played("year", tmp_path, "month: {output: 10}\nload: {output: 1}\n").cover()

    assert found.steps == ("month", "load")


def test_a_story_is_that_of_the_cell(tmp_path: Path) -> None:
    program = played("nightly", tmp_path)

    story = program.story_of_case("load#2", "QUOTA")

    assert story.case in cells(covered("nightly"))["load#2", "QUOTA"].cases
    assert [line.place for line in story.story if "QUOTA" in line.text] == ["load#2"]
    assert any(line.place == "nightly" and f"'load#2' at {story.case.at}" in line.text for line in story.story)


def test_the_handler_the_triager_and_the_undo_of_a_call_fail_too() -> None:
    found = cells(covered("nightly"))

    assert found["publish", "undo fails"].verdict == "fails"
    assert found["announce", "EXCEPTION"].verdict == "parked"


def test_a_case_that_is_cut_short_is_the_same_as_one_that_is_played_to_its_end(tmp_path: Path) -> None:
    program = played("nightly", tmp_path)

    assert program.page().coverage == program.cover()


@pytest.mark.parametrize(
    ("step", "failure", "kind"), [("nowhere", "EXCEPTION", UnknownStep), ("load", "HTTP_5XX", InputInvalid)]
)
def test_a_call_or_a_failure_that_is_not_there_is_refused(
    tmp_path: Path, step: str, failure: str, kind: type[Exception]
) -> None:
    program = played("nightly", tmp_path)

    with pytest.raises(kind):
        program.story_of_case(step, failure)
    with pytest.raises(kind):
        program.cover(step=step, failure=failure)


def test_one_call_or_one_failure_is_played_alone(tmp_path: Path) -> None:
    program = played("nightly", tmp_path)

    assert set(cells(program.cover(step="load", failure="quota"))) == {("load", "QUOTA")}
    assert {step for step, _ in cells(program.cover(failure="undo fails"))} == {"publish"}


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RehearsedProgram]:
    monkeypatch.chdir(tmp_path)
    return partial(_written, tmp_path)


def _written(tmp_path: Path, body: str, fakes: str = "load: {output: 1}\n", top: str = "") -> RehearsedProgram:
    """A program of its own, in a file."""
    file = tmp_path / "odd.py"
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    file.write_text(
        f"from mulligan import *\n{top}\n@step\ndef load(part: int) -> int: ...\n\n@program\ndef odd():\n{lines}\n"
    )
    (tmp_path / "fakes.yaml").write_text(fakes)
    return read_program(file, tmp_path / "fakes.yaml")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("load(1)\nraise KeyError('rows')", "EXCEPTION: KeyError: 'rows'"),
        ("load(1)\nimport os\nos._exit(3)", "ends by itself"),
        ("load(1)\nwhile True: pass", "processor time"),
        ("load(1)\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "ends by itself"),
        ("import time\nload(time.time_ns())", "not the same in a replay"),
        ("load('x' * 10)\nload.options(key='a')(1)\nload.options(key='a')(1)", "EXCEPTION"),
    ],
)
def test_code_that_misbehaves_is_refused_in_a_sentence(
    written: Callable[..., RehearsedProgram], body: str, says: str
) -> None:
    program = written(body)
    program.turn_seconds = 0.2

    with pytest.raises(Refused) as refused:
        program.cover()

    assert says in str(refused.value)


def test_code_that_misbehaves_after_a_failure_leaves_that_unknown(written: Callable[..., RehearsedProgram]) -> None:
    body = "try:\n    load(1)\nexcept StepFailed:\n    import os\n    os._exit(3)"

    found = written(body).cover()

    assert cells(found)["load", "EXCEPTION"].verdict == "unknown"
    assert cells(found)["load", "kill"].verdict == "recovered"


def test_a_program_that_tries_for_ever_fails_in_the_end(written: Callable[..., RehearsedProgram]) -> None:
    body = "while True:\n    try:\n        return load(1)\n    except StepFailed:\n        sleep('1m')"

    found = cells(written(body).cover())

    assert [case.verdict for case in found["load", "EXCEPTION"].cases] == ["handled", "handled", "fails"]


def test_a_call_of_the_path_without_a_fake_is_refused_with_what_to_write(
    written: Callable[..., RehearsedProgram],
) -> None:
    program = written("return load(1)", fakes="laod: {output: 1}\n")

    with pytest.raises(InputInvalid) as refused:
        program.cover()

    assert "'load' (odd.py:" in refused.value.message and "laod" in refused.value.hint


def test_a_comment_beside_a_call_accepts_its_failure(written: Callable[..., RehearsedProgram]) -> None:
    body = "# coverage: accept EXCEPTION because somebody has to look at it\nload(1)\nload(2)"

    found = cells(written(body).cover())

    assert found["load", "EXCEPTION"].accepted == "somebody has to look at it"
    assert not found["load#2", "EXCEPTION"].accepted


def test_what_no_call_used_and_what_the_code_does_itself_is_said(written: Callable[..., RehearsedProgram]) -> None:
    body = "open('/etc/hostname').close()\nload(1)"

    found = written(body, fakes="load: {output: 1}\nlaod: {output: 2}\n").cover()

    assert any("opens a file itself" in one for one in found.unknown)
    assert any("'laod'" in one for one in found.unknown)


def test_a_workflow_that_is_no_program_is_not_rehearsed(tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text("steps: [{step: a, shell: 'true'}]")
    (tmp_path / "fakes.yaml").write_text("a: {output: 1}")

    with pytest.raises(InputInvalid):
        read_program(tmp_path / "plain.yaml", tmp_path / "fakes.yaml")
