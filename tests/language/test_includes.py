"""Workflows that name other workflows: pinned with them, relative to them, never in a circle."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mulligan.core.model.workflow import Action
from mulligan.errors import LanguageError
from mulligan.formats import load as load_any
from mulligan.language import load

CHILD = """\
inputs: {x: string, n: {type: integer, default: 1}}
steps: [{step: c, shell: make}]
outputs: {y: '${steps.c.output}'}
"""


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder / next(iter(files))


def refused(path: Path) -> str:
    with pytest.raises(LanguageError) as caught:
        load(path)
    return caught.value.render().replace(f"{path.parent}/", "")


def test_a_child_is_found_beside_its_parent_and_pinned_with_it(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {
            "main.yaml": "steps: [{step: a, workflow: {file: parts/child.yaml, inputs: {x: '${run.id}'}}}]",
            "parts/child.yaml": CHILD.replace("[{step: c, shell: make}]", "[{step: c, workflow: grandchild.yaml}]"),
            "parts/grandchild.yaml": "steps: [{step: g, shell: make}]",
        },
    )

    found = load(path)

    action = found.steps[0].action
    assert action is not None
    assert action.params == {"file": "parts/child.yaml", "inputs": {"x": {"${}": "b0"}}}
    child = found.children["parts/child.yaml"]
    assert child.name == "child"
    assert child.steps[0].action == Action("workflow", {"file": "grandchild.yaml"})
    assert child.children["grandchild.yaml"].steps[0].name == "g"


def test_a_file_that_includes_itself_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, {"main.yaml": "steps: [{step: a, workflow: main.yaml}]"})

    assert refused(path) == (
        "error[language.include_cycle]: main.yaml:1:29: 'main.yaml' includes itself: main.yaml → main.yaml\n"
        "  1 | steps: [{step: a, workflow: main.yaml}]\n"
        "    |                             ^^^^^^^^^"
    )


def test_files_that_include_each_other_are_refused(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {
            "a.yaml": "steps: [{step: a, workflow: b.yaml}]",
            "b.yaml": "steps: [{step: b, workflow: ./a.yaml}]",
        },
    )

    assert refused(path) == (
        "error[language.include_cycle]: b.yaml:1:29: './a.yaml' includes itself: a.yaml → b.yaml → a.yaml\n"
        "  1 | steps: [{step: b, workflow: ./a.yaml}]\n"
        "    |                             ^^^^^^^^"
    )


def test_more_than_sixteen_files_deep_are_refused(tmp_path: Path) -> None:
    files = {f"w{i}.yaml": f"steps: [{{step: a, workflow: w{i + 1}.yaml}}]" for i in range(18)}
    path = write(tmp_path, {**files, "w18.yaml": "steps: [{step: a, shell: make}]"})

    assert refused(path) == (
        "error[language.include_depth]: w16.yaml:1:29: workflows include each other more than 16 deep\n"
        "  1 | steps: [{step: a, workflow: w17.yaml}]\n"
        "    |                             ^^^^^^^^"
    )


def test_sixteen_files_deep_are_fine(tmp_path: Path) -> None:
    files = {f"w{i}.yaml": f"steps: [{{step: a, workflow: w{i + 1}.yaml}}]" for i in range(16)}
    path = write(tmp_path, {**files, "w16.yaml": "steps: [{step: a, shell: make}]"})

    assert load(path).steps


def test_a_file_that_is_known_already_counts_as_deep_as_it_is(tmp_path: Path) -> None:
    files = {f"w{i}.yaml": f"steps: [{{step: a, workflow: w{i + 1}.yaml}}]" for i in range(1, 20)}
    root = "steps: [{step: late, workflow: w10.yaml}, {step: early, workflow: w1.yaml}]"
    path = write(tmp_path, {"w0.yaml": root, **files, "w20.yaml": "steps: [{step: a, shell: make}]"})

    with pytest.raises(LanguageError, match="workflows include each other more than 16 deep"):
        load(path)


def test_files_that_double_at_each_level_are_refused(tmp_path: Path) -> None:
    twice = "steps: [{{step: a, workflow: {0}}}, {{step: b, workflow: ./{0}}}]"
    files = {f"w{i}.yaml": twice.format(f"w{i + 1}.yaml") for i in range(15)}
    path = write(tmp_path, {**files, "w15.yaml": "steps: [{step: a, shell: make}]"})

    with pytest.raises(LanguageError, match="more than 10,000 workflows are included"):
        load(path)


def test_an_input_of_a_child_is_one_of_its_enum(tmp_path: Path) -> None:
    child = "inputs: {n: {type: integer, enum: [1, 2]}}\nsteps: [{step: a, shell: 'make ${inputs.n}'}]"
    path = write(tmp_path, {"w.yaml": "steps: [{step: a, workflow: {file: c.yaml, inputs: {n: 3}}}]", "c.yaml": child})

    assert refused(path) == (
        "error[language.input]: w.yaml:1:56: input 'n' of 'c.yaml' is not in its 'enum'\n"
        "  1 | steps: [{step: a, workflow: {file: c.yaml, inputs: {n: 3}}}]\n"
        "    |                                                        ^ it has '1' and '2'"
    )


def test_the_problems_of_a_child_are_told_with_its_own_lines(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {
            "main.yaml": "steps:\n  - {step: a, workflow: child.yaml}\n  - {step: a, workflow: child.yaml}\n",
            "child.yaml": "steps:\n  - {step: c, shell: make, tiemout: 3s}\n",
        },
    )

    assert refused(path) == (
        "error[language.unknown_key]: child.yaml:2:28: 'tiemout' is not a key of step 'c'\n"
        "  2 |   - {step: c, shell: make, tiemout: 3s}\n"
        "    |                            ^^^^^^^ did you mean 'timeout'?\n"
        "error[language.duplicate_step]: main.yaml:3:12: there are two steps 'a': first in line 2\n"
        "  3 |   - {step: a, workflow: child.yaml}\n"
        "    |            ^"
    )


def test_the_inputs_of_a_child_are_checked_where_they_are_given(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {
            "main.yaml": "steps:\n  - step: a\n    workflow: {file: child.yaml, inputs: {n: many, z: 1}}\n",
            "child.yaml": CHILD,
        },
    )

    assert refused(path) == (
        "error[language.input]: main.yaml:3:22: 'child.yaml' requires the input 'x'\n"
        "  3 |     workflow: {file: child.yaml, inputs: {n: many, z: 1}}\n"
        "    |                      ^^^^^^^^^^ add it under 'inputs:'\n"
        "error[language.input]: main.yaml:3:46: input 'n' of 'child.yaml' is not of its type, integer\n"
        "  3 |     workflow: {file: child.yaml, inputs: {n: many, z: 1}}\n"
        "    |                                              ^^^^\n"
        "error[language.unknown_input]: main.yaml:3:52: 'child.yaml' has no input 'z'\n"
        "  3 |     workflow: {file: child.yaml, inputs: {n: many, z: 1}}\n"
        "    |                                                    ^"
    )


def test_text_may_stand_for_a_file_that_is_not_saved_yet(tmp_path: Path) -> None:
    write(tmp_path, {"child.yaml": "steps: [{step: c, shell: make}]"})

    found = load(tmp_path / "main.yaml", text="steps: [{step: a, workflow: child.yaml}]")

    assert found.children["child.yaml"].name == "child"


@pytest.mark.parametrize("file", ["a\\0b", "x" * 5000, ".", "/proc/self/mem", "/dev/zero", "pipe.yaml"])
def test_a_name_that_is_no_readable_file_is_refused(tmp_path: Path, file: str) -> None:
    path = write(tmp_path, {"main.yaml": f'steps: [{{step: a, workflow: "{file}"}}]'})
    os.mkfifo(tmp_path / "pipe.yaml")

    assert "error[language." in refused(path)


def test_a_file_that_never_ends_is_refused() -> None:
    assert refused(Path("/dev/zero")) == "error[language.too_large]: zero: the file has more than 64 MiB"


NO_WORKFLOWS = {
    "shadow": "root:$6$hush:19000:0:99999:7:::\nbin:*:19000:0:::\n",
    "key": "-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----\n",
    "credentials.yaml": "name: production\npassword: hush\n",
    "list": "- hush\n- hush\n",
    "broken": "password: [hush\n",
    "bytes": "\udcffhush",
    "code.py": "import os\nhush = {1: [\n",
    "data.json": '{"hush": 1,}',
    "empty": "",
    "dotenv": "TOKEN=hush\nsteps=1\n",
}


@pytest.mark.parametrize("name", NO_WORKFLOWS)
@pytest.mark.parametrize("read", [load, load_any], ids=["ours", "anybodys"])
def test_nothing_is_shown_of_an_included_file_that_is_no_workflow(
    tmp_path: Path, name: str, read: Callable[[Path], object]
) -> None:
    main = write(tmp_path, {"main.yaml": f"steps: [{{step: a, workflow: {name}}}]"})
    (tmp_path / name).write_bytes(NO_WORKFLOWS[name].encode("utf-8", "surrogateescape"))

    with pytest.raises(LanguageError) as caught:
        read(main)

    (problem,) = caught.value.problems
    assert (problem.code, problem.message) == ("language.include", f"'{name}' is not a workflow")
    assert (problem.file, problem.line, problem.column) == (str(main), 1, 29)
    assert "hush" not in caught.value.render()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("steps: [{step: a, shel: make}]", "language.unknown_key"),
        ("steps:\n  - {step: a, shell: [}\n", "language.yaml"),
        ('{\n  "steps": [,]\n}', "language.yaml"),
        ("stepz: 1\nsteps: []", "language.unknown_key"),
    ],
)
def test_a_workflow_with_a_mistake_shows_its_line_wherever_it_is_included(tmp_path: Path, text: str, code: str) -> None:
    path = write(tmp_path, {"main.yaml": "steps: [{step: a, workflow: child.yaml}]", "child.yaml": text})

    with pytest.raises(LanguageError) as caught:
        load(path)

    first = caught.value.problems[0]
    assert (first.code, first.file) == (code, str(tmp_path / "child.yaml"))
    assert first.source_line


def test_a_file_that_somebody_names_himself_shows_its_lines(tmp_path: Path) -> None:
    path = write(tmp_path, {"notes.txt": "mine: [1\n"})

    with pytest.raises(LanguageError) as caught:
        load(path)

    assert caught.value.problems[0].source_line
