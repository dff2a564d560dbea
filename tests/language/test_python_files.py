"""A Python file in the place of a workflow file: whatever it does, it is a workflow or a refusal."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mulligan.errors import LanguageError
from mulligan.language import examine, lint, load, load_text
from mulligan.language.python.builder import Workflow
from mulligan.language.python.python_file_process import choose_workflow
from mulligan.language.python.python_files import PythonFile, as_python_file, build

HEAD = "from mulligan import Workflow\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which mulligan is called."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(path: str, text: str) -> Path:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def refusal(path: Path) -> str:
    with pytest.raises(LanguageError) as refused:
        load(path)
    return refused.value.render()


@pytest.mark.parametrize(
    "text",
    [
        'flow = Workflow("w").step("a", shell="make")',
        # The checked one will do.
        pytest.param('flow = Workflow("w").step("a", shell="make").check()', marks=pytest.mark.nightly),
        # Two names of one.
        pytest.param('a = b = Workflow("w").step("a", shell="make")', marks=pytest.mark.nightly),
        # Of several the one that is called so.
        'other = Workflow("o")\nworkflow = Workflow("w").step("a", shell="make")',
        # What stands under this is for who runs the file as a script.
        'flow = Workflow("w").step("a", shell="make")\nif __name__ == "__main__":\n    raise SystemExit(1)',
    ],
)
def test_a_file_that_makes_a_workflow_is_one(folder: Path, text: str) -> None:
    assert load(written("flow.py", HEAD + text)) == load_text("name: w\nsteps: [{step: a, shell: make}]")


@pytest.mark.parametrize(("file", "call"), [("release.py", "release:say"), ("flows/release.py", "flows.release:say")])
def test_a_function_is_called_as_a_worker_in_this_folder_finds_it(folder: Path, file: str, call: str) -> None:
    text = 'flow = Workflow("w")\n@flow.python()\ndef say() -> str:\n    return "hello"\n'

    (step,) = load(written(file, HEAD + text)).steps

    assert step.action is not None
    assert step.action.params == {"call": call}


def test_a_function_that_no_worker_could_import_from_here_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written("release.py", HEAD + 'flow = Workflow("w")\n@flow.python()\ndef say() -> str:\n    return "hello"\n')
    (folder / "below").mkdir()
    monkeypatch.chdir("below")

    assert refusal(Path("../release.py")) == (
        "error[language.function]: ../release.py:3:1: workers cannot import the function 'say'\n"
        "  3 | @flow.python()\n"
        "    | ^^^^^^^^^^^^^^ call mulligan from the folder of this file, or from one above it"
    )


@pytest.mark.parametrize(("file", "name"), [("my-flow.py", "my_flow"), ("2026.py", "flow_2026")])
def test_a_file_whose_name_is_not_that_of_a_module_is_refused_with_another_name(
    folder: Path, file: str, name: str
) -> None:
    text = "from mulligan import flow, step\n@step\ndef say(): ...\n@flow\ndef nightly(): say()\n"

    refused = refusal(written(file, text))

    assert "workers cannot import the function 'say'" in refused
    assert refused.endswith(f"is not the name of a module: rename the file to {name}.py")


def test_modules_beside_the_file_and_in_this_folder_can_be_imported(folder: Path) -> None:
    written("names.py", 'NAME = "w"')
    written("flows/commands.py", 'COMMAND = "make"')
    text = "from commands import COMMAND\nfrom names import NAME\nflow = Workflow(NAME).step('a', shell=COMMAND)"

    assert load(written("flows/flow.py", HEAD + text)).name == "w"


def test_what_the_file_prints_is_no_part_of_the_answer(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = 'print("hello")\nflow = Workflow("w").step("a", shell="make")'

    assert load(written("flow.py", HEAD + text)).name == "w"
    assert capfd.readouterr() == ("", "hello\n")


def test_the_file_runs_in_a_process_of_its_own(folder: Path) -> None:
    text = 'import os\nflow = Workflow(f"w{os.getppid()}").step("a", shell="make")\nos.chdir("/")\nos.environ.clear()'

    assert load(written("flow.py", HEAD + text)).name == f"w{os.getpid()}"
    assert Path.cwd() == folder


def test_warnings_point_into_the_file(folder: Path) -> None:
    text = 'flow = Workflow("w", handlers={"tidy": "make clean"}).step("a", shell="make")'

    (warning,) = lint(written("flow.py", HEAD + text))

    assert (warning.kind, warning.line) == ("warning", 2)
    assert examine("flow.py").workflow.name == "w"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "x = 1",
            "flow.py: the file makes no workflow\n  decorate a function with @flow, or write workflow = Workflow(…)",
        ),
        pytest.param(
            HEAD + 'a = Workflow("a")\nb = Workflow("b")',
            "flow.py: the file makes 2 workflows: 'a' and 'b'\n  choose one: flow.py:a, or call it 'workflow'",
            marks=pytest.mark.nightly,
        ),
        ("x = (", "flow.py:1:1: SyntaxError: '(' was never closed\n  1 | x = (\n    | ^^^^^"),
        (
            "def f():\n    return nope\nf()",
            "flow.py:2:5: NameError: name 'nope' is not defined\n  2 |     return nope\n    |     ^^^^^^^^^^^",
        ),
        (
            "import nowhere_to_be_found",
            "flow.py:1:1: ModuleNotFoundError: No module named 'nowhere_to_be_found'\n"
            "  1 | import nowhere_to_be_found\n    | ^^^^^^^^^^^^^^^^^^^^^^^^^^ "
            "install it where mulligan runs, or import it inside the step that needs it",
        ),
        pytest.param(
            "raise SystemExit",
            "flow.py:1:1: SystemExit\n  1 | raise SystemExit\n    | ^^^^^^^^^^^^^^^^",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "import os; os._exit(0)",
            "flow.py: the file ended its process before it made a workflow",
            marks=pytest.mark.nightly,
        ),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            "flow.py: the file ended its process before it made a workflow",
        ),
    ],
)
def test_a_file_that_makes_no_workflow_is_refused(folder: Path, text: str, told: str) -> None:
    assert refusal(written("flow.py", text)) == f"error[language.python]: {told}"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("from mulligan import task", "did you mean 'step'?"),
        pytest.param("from mulligan import aprove", "did you mean 'approve'?", marks=pytest.mark.nightly),
        pytest.param("from mulligan import pandas_like_thing", "", marks=pytest.mark.nightly),
        pytest.param(
            "from mulligan import step\n@step\ndef a(): ...\na.mapp([1])",
            "did you mean 'map'?",
            marks=pytest.mark.nightly,
        ),
        (
            "from mulligan import step\n@step\ndef a(): ...\na.submit()",
            "call it like a function, fetch(url); for each item of a list: fetch.map(urls);"
            " with other keys: fetch.options(…)",
        ),
        ("[].appendd(1)", ""),
    ],
)
def test_a_name_that_the_package_does_not_have_is_answered_with_ours(folder: Path, text: str, hint: str) -> None:
    with pytest.raises(LanguageError) as refused:
        load(written("flow.py", text))

    assert refused.value.problems[0].hint == hint


def test_a_refusal_names_the_file_as_it_was_named(folder: Path) -> None:
    file = written("flows/flow.py", HEAD + 'flow = Workflow("w").step("a", shell="make", needs=["b"])')

    assert refusal(file) == (
        "error[language.unknown_step]: flows/flow.py:2:54: step 'a' needs 'b', which is not a step\n"
        '  2 | flow = Workflow("w").step("a", shell="make", needs=["b"])\n'
        "    |                                                      ^"
    )


def test_a_file_that_never_ends_is_stopped(folder: Path) -> None:
    (folder / "flow.py").write_text("while True: pass\n")

    with pytest.raises(LanguageError, match=r"the file has made no workflow after 0\.01 seconds, and was stopped"):
        build(PythonFile(folder / "flow.py"), seconds_max=0.01)


def test_a_file_that_is_not_there_is_refused(folder: Path) -> None:
    assert refusal(Path("flow.py")) == "error[language.unreadable]: flow.py: there is no such file"


# -- several workflows -----------------------------------------------------------------------------------------------


class Flow:
    """Makes a workflow when it is asked to, as `@flow` does."""

    def __init__(self, name: str, *children: str, module: str = "nightly") -> None:
        self.name = name
        self.__module__ = module
        self._children = children

    def __mulligan_workflow__(self) -> Workflow:
        made = Workflow(self.name)
        for number, child in enumerate(self._children):
            made.step(f"s{number}", workflow=child)
        return made if self._children else made.step("a", shell="make")


def chosen(name: str = "", file: str = "nightly.py", **values: Any) -> str:
    """The name of the variable whose workflow runs, or the refusal."""
    module = ModuleType("nightly")
    vars(module).update(values)
    try:
        found = choose_workflow(module, PythonFile(Path(file), name))
    except LanguageError as refused:
        (problem,) = refused.problems
        return f"{problem.message}; {problem.hint}"
    return next(variable for variable, value in values.items() if value is found)


def test_the_workflow_that_a_user_means_is_chosen() -> None:
    weekly, daily = Flow("weekly"), Flow("daily")

    assert chosen(only=weekly) == "only"
    assert chosen(a=weekly, workflow=daily) == "workflow"
    assert chosen(a=weekly, flow=daily) == "flow"
    assert chosen(a=weekly, nightly=daily) == "nightly"
    assert chosen(file="my-flow.py", a=weekly, my_flow=daily) == "my_flow"


def test_a_workflow_that_another_one_calls_is_not_the_one_to_run(tmp_path: Path) -> None:
    child = tmp_path / "weekly.yaml"
    child.write_text("name: weekly\nsteps: [{step: a, shell: make}]")

    assert chosen(weekly=Flow("weekly"), other=Flow("other", str(child))) == "other"


def test_a_flow_of_the_file_goes_before_one_that_it_imports() -> None:
    assert chosen(helper=Flow("helper", module="shared"), own=Flow("own")) == "own"
    assert chosen(helper=Flow("helper", module="shared")) == "helper"


def test_a_workflow_is_chosen_by_its_variable_or_its_own_name() -> None:
    weekly, daily = Flow("every-week"), Flow("daily")

    assert chosen("weekly", weekly=weekly, daily=daily) == "weekly"
    assert chosen("every-week", weekly=weekly, daily=daily) == "weekly"
    assert chosen("weekli", weekly=weekly, daily=daily) == (
        "the file makes no workflow 'weekli'; did you mean 'weekly'?"
    )
    assert chosen("x", weekly=weekly, daily=daily) == "the file makes no workflow 'x'; it makes 'weekly' and 'daily'"
    assert chosen("x") == "the file makes no workflow 'x'; it makes none"


def test_several_workflows_of_which_none_is_the_main_one_are_refused() -> None:
    assert chosen(weekly=Flow("weekly"), daily=Flow("daily")) == (
        "the file makes 2 workflows: 'weekly' and 'daily'; choose one: nightly.py:weekly, or call it 'workflow'"
    )


@pytest.mark.parametrize(
    ("given", "file", "name"),
    [("nightly.py", "nightly.py", ""), ("a/nightly.py:weekly", "a/nightly.py", "weekly"), ("c:d.py:w", "c:d.py", "w")],
)
def test_a_workflow_of_a_file_is_named_after_a_colon(folder: Path, given: str, file: str, name: str) -> None:
    assert as_python_file(Path(given)) == PythonFile(Path(file), name)


def test_a_file_whose_name_has_a_colon_is_that_file(folder: Path) -> None:
    written("odd.py:yaml", "steps: []")

    assert as_python_file(Path("odd.py:yaml")) is None
    assert as_python_file(Path("nightly.yaml:weekly")) is None


def test_one_of_several_workflows_is_loaded_by_its_name(folder: Path) -> None:
    written("flow.py", HEAD + 'a = Workflow("a").step("x", shell="make")\nb = Workflow("b").step("x", shell="make")')

    assert load("flow.py:b").name == "b"
    assert refusal(Path("flow.py:c")) == (
        "error[language.python]: flow.py: the file makes no workflow 'c'\n  it makes 'a' and 'b'"
    )
    assert refusal(Path("none.py:c")) == "error[language.unreadable]: none.py: there is no such file"
