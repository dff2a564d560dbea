"""The options --map and --max-iterations: the steps of a regular workflow run several times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.git_repository import Repository, repository
from tests.support.runner import ROOM, Live, Ran

import mulligan
from mulligan.errors import InputInvalid, LanguageError
from mulligan.formats import load, options_of
from mulligan.formats.prodigy.runtime.iterations import begin_iteration, end_iteration, list_inputs
from mulligan.service.runs.changes.prepared_runs import prepare

__all__ = ["repository"]


def run(live: Live, text: str, **options: Any) -> Ran:
    workflow = load(live.write("flow.yml", text), named="prodigy", options=options)
    prepared = prepare(workflow, {}, live.folder)
    return live._drive(lambda driver: live.service.changes.create(prepared, driver)[0], None, 0.0, ROOM)


# -- runs ------------------------------------------------------------------------------------------------------------


def test_the_steps_run_for_each_file_and_a_retry_goes_on_with_the_file_that_failed(live_file: Live) -> None:
    for name in ("65-refactor.md", "api.md", "zz.md"):
        (live_file.folder / "specs").mkdir(exist_ok=True)
        live_file.write(f"specs/{name}")
    text = (
        '- shell: echo "$ARG $1 ${INDEX}/${TOTAL} ${FILE_PATH}" >> log\n'
        '- shell: test "$ARG" != api || test -e fixed\n'
        "- shell: echo done $ARG >> log\n"
    )

    first = run(live_file, text, map=["specs/*.md"])
    live_file.write("fixed")
    live_file.service.changes.retry(first.run_id)
    second = live_file.resume(first.run_id)

    assert (first.status, second.status) == ("failed", "completed")
    assert live_file.lines("log") == [
        "65 65 1/3 specs/65-refactor.md",
        "done 65",
        "api api 2/3 specs/api.md",
        "done api",
        "zz zz 3/3 specs/zz.md",
        "done zz",
    ]


def test_the_steps_run_so_many_times_outside_a_repository(live_file: Live) -> None:
    ran = run(live_file, "commands: [{shell: 'echo ${iteration} $ARG >> log'}]\n", max_iterations=12)

    assert ran.status == "completed"
    assert live_file.lines("log") == [f"{number} " for number in range(1, 13)]


# -- passes ----------------------------------------------------------------------------------------------------------


def test_the_argument_of_a_file_is_its_name_up_to_a_hyphen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b.md", "12-x.md", "-y.md"):
        (tmp_path / name).touch()

    found = list_inputs(["*.md"], "more words")

    assert [each["argument"] for each in found] == ["-y", "12", "b", "more", "words"]
    with pytest.raises(Exception, match="no file matches 'x/\\*'"):
        list_inputs(["x/*"])


def test_passes_end_when_one_changed_nothing(repository: Repository) -> None:
    first = begin_iteration(1, 5)
    repository.write("new.txt", "new")
    second = begin_iteration(2, 5)

    assert end_iteration(first) == {"is_repeated": True, "next": 2, "reason": "pass 1 of 5 is done"}
    assert end_iteration(second) == {"is_repeated": False, "next": 3, "reason": "pass 2 of 5 changed nothing"}
    assert end_iteration({**first, "number": 5})["is_repeated"] is False


# -- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"map": ["a*", "b"]}, {"max_iterations": 3}, {}])
def test_a_workflow_knows_the_options_that_it_was_read_with(options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "flow.yml"
    path.write_text("commands: [{shell: 'echo ${n}'}]\nparameters: {n: {default: 1}}\n")

    assert options_of(load(path, options=options)) == options


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("steps: [{step: a, shell: a}]\n", "--max-iterations is for Prodigy files, and this is not one"),
        ("name: a\njobs: [{name: a, command: a}]\n", "--max-iterations is for Prodigy files, and this is not one"),
        (
            "map: {input: a, agent_template: [{shell: a}]}\n",
            "--max-iterations is for regular workflows, and this is a MapReduce workflow",
        ),
        (
            "parameters: {max_iterations: {default: 1}}\ncommands: [{shell: a}]\n",
            "--max-iterations cannot be given: the workflow has a parameter 'max_iterations'",
        ),
    ],
)
def test_an_option_that_is_not_for_a_file_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "flow.yml"
    path.write_text(text)

    with pytest.raises(LanguageError) as caught:
        load(path, options={"max_iterations": 2})

    assert caught.value.problems[0].message == said


def test_a_program_gives_the_options_too_and_a_corrected_file_is_read_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "flow.yml"
    path.write_text("commands: [{shell: 'echo $ITERATION >> log'}]\n")

    first = mulligan.run(mulligan.load(path, format="prodigy", max_iterations=2), show=False)
    first.fork("iteration", flow=path)

    assert (tmp_path / "log").read_text().split() == ["1", "2", "1", "2"]
    assert options_of(mulligan.load(path, map="specs/*.md").workflow) == {"map": ["specs/*.md"]}
    assert mulligan.load(path, worktree=True).steps[0] == "workspace"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_iterations": 0}, "--max-iterations must be a whole number from 1 to 10,000, not 0"),
        ({"max_iterations": True}, "--max-iterations must be a whole number from 1 to 10,000, not True"),
        ({"max_iterations": 2, "map": "a"}, "--map and --max-iterations cannot be combined"),
        ({"map": ["a", ""]}, "--map has an empty pattern"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(options: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputInvalid) as caught:
        mulligan.load(tmp_path / "flow.yml", **options)

    assert caught.value.message == said
