"""Everything in examples/formats/ is true: it runs as it is, ends as `runs.yaml` beside it says, and so does what
`convert` makes of it.

    sweep.yaml: {ends: completed, steps: {work_1: completed}, files: {out/result.txt: "42"}}

| key | what it says |
|---|---|
| `ends` | `completed`, `failed`, `cancelled`, or `waiting`: for a person |
| `exit_code` | where it is another than that of the end |
| `inputs`, `env` | what the run is given, and what is in the environment of its worker; PORT is that of a server |
| `git` | true: it runs in a repository in which all of the folder is committed |
| `steps`, `outputs` | how these steps end, and what these outputs are |
| `files` | what is in these files then, but for a last newline; null: there is no such file |
| `not_run` | in place of all the others: why it is only loaded, and converted |
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from jsonschema import Draft202012Validator
from tests.support.nightly import sample
from tests.support.runner import Live, Ran
from tests.support.web import as_json, serving

from mulligan.core.model.workflow import Workflow, encode
from mulligan.errors import LanguageError
from mulligan.formats import FORMATS, convert, examine, load
from mulligan.formats.torc.sweeps import is_same
from mulligan.language.schema import schema
from mulligan.language.text.document import decode, parse
from mulligan.language.text.nodes import Source, plain
from mulligan.service.rendering.drawing import draw_mermaid

FOLDER = Path(__file__).parent.parent.parent / "examples" / "formats"
RUNS = "runs.yaml"
KEYS = {"ends", "exit_code", "inputs", "env", "git", "steps", "outputs", "files", "not_run"}
EXIT_CODES = {"completed": 0, "failed": 1, "cancelled": 3, "waiting": 4}
VALIDATOR = Draft202012Validator(schema())
SUFFIXES = {".yaml", ".yml", ".json", ".json5", ".kdl"}


class Example(NamedTuple):
    """A file, and what `runs.yaml` says of it."""

    path: Path
    says: dict[str, Any]

    @property
    def system(self) -> str:
        return self.path.parent.name

    def __str__(self) -> str:
        return f"{self.system}/{self.path.name}"


def said_in(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / RUNS
    found: dict[str, dict[str, Any]] = plain(parse(decode(path.read_bytes(), str(path))))
    return found


def examples() -> list[Example]:
    folders = [FOLDER / system for system in FORMATS]
    return [Example(folder / name, says) for folder in folders for name, says in said_in(folder).items()]


EXAMPLES = examples()
each_example = pytest.mark.parametrize("example", EXAMPLES, ids=str)
each_system = pytest.mark.parametrize("system", FORMATS)


# The folders


@each_system
def test_a_system_has_six_examples_that_run(system: str) -> None:
    run = [one for one in EXAMPLES if one.system == system and "ends" in one.says]

    assert len(run) >= 6


@each_system
def test_every_workflow_in_the_folder_of_a_system_is_one_that_is_spoken_of(system: str) -> None:
    folder = FOLDER / system

    files = [path for path in folder.iterdir() if path.suffix in SUFFIXES and path.name != RUNS]

    assert {path.name for path in files if is_workflow(path)} == set(said_in(folder))


def is_workflow(path: Path) -> bool:
    try:
        return load(path).origin != ""
    except LanguageError:
        # A workflow that is refused, or the data of one: which, the test of each example tells.
        return path.name in said_in(path.parent)


def test_what_is_said_of_an_example_is_something_that_is_asked() -> None:
    assert [(one, *one.says.keys() - KEYS) for one in EXAMPLES if one.says.keys() - KEYS] == []
    assert [one for one in EXAMPLES if ("ends" in one.says) == ("not_run" in one.says)] == []


# The files


def test_an_example_is_told_by_what_is_in_it() -> None:
    origins = {str(one): examine(one.path).workflow.origin for one in EXAMPLES}

    assert origins == {str(one): one.system for one in EXAMPLES}


@each_example
def test_what_is_converted_is_the_same_workflow(example: Example, tmp_path: Path) -> None:
    shutil.copytree(example.path.parent, tmp_path, dirs_exist_ok=True)
    ours = tmp_path / "converted-by-a-test.yaml"

    ours.write_text(convert(example.path).text, encoding="utf-8")

    original = msgspec.structs.replace(load(example.path), origin="")
    if example.system == "torc" and "matrix:" in ours.read_text(encoding="utf-8"):
        # A sweep is written as a matrix, which is compared step by step.
        assert is_same(original, load(ours))
    else:
        assert without_origin(load(ours)) == without_origin(original)
    assert load(ours).origin == ""


def test_what_is_converted_fits_the_schema_that_editors_use_and_says_what_is_warned_about() -> None:
    for one in EXAMPLES:
        text, _, warnings = convert(one.path)

        written = plain(parse(Source(text, "ours.yaml")))
        lines = [line.strip() for line in text.splitlines()]
        comments = " ".join(line.removeprefix("# ") for line in lines if line.startswith("#"))
        assert [error.message for error in VALIDATOR.iter_errors(written)] == [], str(one)
        assert [warning.message for warning in warnings if warning.message not in comments] == [], str(one)


def without_origin(workflow: Workflow) -> Any:
    """All that is known of a workflow but whose file it was. What has none is one of ours, and runs as such."""
    return json.loads(encode(msgspec.structs.replace(workflow, origin="")))


def test_an_example_can_be_drawn() -> None:
    for one in EXAMPLES:
        workflow = load(one.path)

        drawn = draw_mermaid(workflow)

        assert [step.name for step in workflow.steps if step.name not in drawn] == [], str(one)


@pytest.mark.parametrize(
    "example",
    sample([one for one in EXAMPLES if "ends" in one.says], 11),
    ids=str,
)
def test_an_example_ends_as_it_says(example: Example, live_file: Live) -> None:
    ran = run(live_file, example)

    says = example.says
    assert (ran.status if ran.exit_code != EXIT_CODES["waiting"] else "waiting") == says["ends"], story_text(ran)
    assert ran.exit_code == says.get("exit_code", EXIT_CODES[says["ends"]])
    assert {name: ran.steps[name]["status"] for name in says.get("steps", {})} == says.get("steps", {}), story_text(ran)
    assert {name: ran.shown["outputs"].get(name) for name in says.get("outputs", {})} == says.get("outputs", {})
    assert {name: content(live_file.folder / name) for name in says.get("files", {})} == says.get("files", {})


def run(live: Live, example: Example) -> Ran:
    """In a folder that has all that the example's folder has."""
    shutil.copytree(example.path.parent, live.folder, dirs_exist_ok=True)
    says = example.says
    if says.get("git"):
        commit_all(live.folder)
    with serving(as_json("{}", 503), as_json('{"results": [1, 2]}')) as web, environment(says.get("env", {}), web.port):
        inputs = with_port(says.get("inputs", {}), web.port)
        return live.run(live.folder / example.path.name, inputs=inputs, wait_seconds=60.0)


def with_port(values: Any, port: int) -> Any:
    return json.loads(json.dumps(values).replace("PORT", str(port)))


@contextmanager
def environment(variables: dict[str, str], port: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        # A server on this machine is asked directly.
        for name, value in {"NO_PROXY": "*", **with_port(variables, port)}.items():
            patch.setenv(name, value)
        yield


def commit_all(folder: Path) -> None:
    for words in (
        "init -q -b main",
        "config user.name Tester",
        "config user.email tester@example.org",
        "config commit.gpgsign false",
        "add -A",
        "commit -q -m all",
    ):
        subprocess.run(["git", *words.split()], cwd=folder, check=True)


def content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8").removesuffix("\n") if path.exists() else None


def story_text(ran: Ran) -> str:
    """What helps whoever reads that a test has failed."""
    return "\n".join(ran.story)
