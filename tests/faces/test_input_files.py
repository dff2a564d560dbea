"""`--inputs FILE`: inputs of a run from a YAML or JSON file, or from standard input."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from tests.support.commands import mulligan, workflow

FLOW = """\
inputs:
  name: string
  size: {type: integer, default: 1}
  tags: {type: array, default: []}
steps:
  - step: a
    wait: 0s
outputs: {got: "${inputs}"}
"""
STDIN = ("--inputs", "-", "-i", "size=5")
GIVEN = "name: x\nsize: 3\ntags: [a, {b: 1}]\n"


def test_a_file_gives_inputs_with_their_types_and_single_ones_win(folder: Path) -> None:
    Path("in.yaml").write_text(GIVEN)

    said = mulligan("run", workflow(FLOW), "-i", "size=4", "--inputs", "in.yaml", "--json")

    assert said.json["outputs"]["got"] == {"name": "x", "size": 4, "tags": ["a", {"b": 1}]}


def test_json_with_tabs_and_standard_input_are_taken_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = io.TextIOWrapper(io.BytesIO(b'{\n\t"name": "x",\n\t"size": 3\n}\n'))
    monkeypatch.setattr("sys.stdin", given)

    said = mulligan(
        "step", workflow(FLOW.replace("wait: 0s", "shell: echo ${inputs.name} ${inputs.size}")), "a", *STDIN
    )

    assert said.out == "x 5\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\nsiez: 3\n", "error[input.invalid]: in.yaml: workflow 'flow' has no input 'siez'\n  did you mean 's"),
        ("name: x\nsize: many\n", "error[input.invalid]: in.yaml: input 'size' is 'many', a whole number such as 3"),
        ("name: 1.10\n", "error[input.invalid]: in.yaml: input 'name' is 1.1, a text is expected\n"),
        ("size: 2\n", "error[input.invalid]: in.yaml: input 'name' is missing\n  give it with -i name=VALUE\n"),
        ('{"name": "x", "name": "y"}', "error[input.invalid]: in.yaml: the key 'name' is there twice\n"),
        ("name: x\nname: y\n", "error[language.duplicate_key]: in.yaml:2:1: "),
        ("- name: x\n", "error[language.type]: in.yaml:1:1: a mapping from names to values is expected\n"),
        ("name: 'x\n", "error[language.yaml]: in.yaml:"),
        ("", "error[language.empty]: in.yaml:1:1: the file is empty\n"),
    ],
)
def test_what_is_wrong_with_a_file_names_the_file_and_the_key(folder: Path, text: str, said: str) -> None:
    Path("in.yaml").write_text(text)

    answer = mulligan("run", workflow(FLOW), "--inputs", "in.yaml")

    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(said)


def test_an_error_about_a_single_input_does_not_name_the_file(folder: Path) -> None:
    Path("in.yaml").write_text(GIVEN)

    wrong = mulligan("run", workflow(FLOW), "--inputs", "in.yaml", "-i", "size=many")
    missing = mulligan("run", workflow(FLOW), "--inputs", "none.yaml")

    assert wrong.err.startswith("error[input.invalid]: input 'size' is 'many'")
    assert missing.err == "error[usage]: --inputs: 'none.yaml' cannot be read: no such file or directory\n"


def test_every_command_that_takes_an_input_takes_a_file_of_them(folder: Path) -> None:
    Path("in.yaml").write_text(GIVEN)
    Path("other.yaml").write_text("siez: 9\n")
    flow = workflow(FLOW)
    given = ("--inputs", "in.yaml")
    assert mulligan("run", flow, *given).code == 0

    assert mulligan("run", flow, *given, "--dry-run").code == 0
    assert mulligan("step", flow, "a", *given).code == 0
    assert mulligan("coverage", flow, *given).code == 0
    assert mulligan("fork", "1", "--from", "a", *given, "--dry-run").code == 0
    assert mulligan("fork", "1", "--from", "a", "--inputs", "other.yaml").err.startswith(
        "error[input.invalid]: other.yaml: workflow 'flow' has no input 'siez'"
    )
    mulligan("publish", flow)
    put = mulligan("schedule", "put", "often", "--workflow", "flow", "--every", "1h", *given, "--json").json
    assert put["inputs"] == {"name": "x", "size": 3, "tags": ["a", {"b": 1}]}
    assert "a replay changes nothing" in mulligan("replay", "1", "--at", "3", *given).err
    assert mulligan("retry", "1", *given).err.startswith("error[usage]: --inputs needs --file\n")
