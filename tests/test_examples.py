"""Everything in examples/ is true: it loads, fits the schema, draws, and does what its own comments say.

The first line of an example says what to look for. A second kind of line says what becomes of it:

    # rehearsed: completed; fetch completed, load failed
    # not rehearsed: it calls an agent, and a rehearsal carries out shell commands only

`# inputs: {…}` is what the rehearsal is given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from mulligan.core.workflow import ENGINE_ACTIONS, Command, Workflow
from mulligan.language import check_inputs, lint, load
from mulligan.language.document import decode, parse
from mulligan.language.drawing import draw_mermaid, draw_svg
from mulligan.language.nodes import plain
from mulligan.language.schema import schema
from mulligan.testing.rehearsal import rehearse

FOLDER = Path(__file__).parent.parent / "examples"
EXAMPLES = sorted(FOLDER.glob("*.yaml"))
VALIDATOR = Draft202012Validator(schema())
IN_REHEARSALS = (ENGINE_ACTIONS - {"workflow"}) | {"shell"}


def notes(path: Path) -> dict[str, str]:
    """What the comments at the head of an example say: its `about`, and the notes below it by their name."""
    about, *others = re.findall(r"^# (.*)$", path.read_text(encoding="utf-8").partition("\nname:")[0], re.MULTILINE)
    return {"about": about, **dict(line.split(": ", 1) for line in others)}


def commands(workflow: Workflow) -> Iterator[Command]:
    """Every command of a workflow, however deep in handlers it stands."""
    for step in (*workflow.steps, workflow.end):
        yield from _within(step)
        yield from (inner for command in step.do for inner in _within(command))
        yield from _within(step.undo) if step.undo else ()
        yield from _within(step.map.lister) if step.map and step.map.lister else ()


def _within(command: Command) -> Iterator[Command]:
    yield command
    handler = command.on_failure.commands if command.on_failure else ()
    scripts = (rule.recovery_script for rule in command.rules)
    for inner in (*handler, *command.on_success, command.validator, *scripts):
        if inner is not None:
            yield from _within(inner)


def can_be_rehearsed(workflow: Workflow) -> bool:
    kinds = {command.action.kind for command in commands(workflow) if command.action}
    return kinds <= IN_REHEARSALS and not workflow.secrets


def index_line(path: Path) -> str:
    return f"| [{path.name}]({path.name}) | {notes(path)['about']} |"


def named(path: Path) -> str:
    return path.stem


each_example = pytest.mark.parametrize("path", EXAMPLES, ids=named)
each_rehearsal = pytest.mark.parametrize("path", [path for path in EXAMPLES if "rehearsed" in notes(path)], ids=named)


@each_example
def test_an_example_loads_and_is_called_what_its_file_is_called(path: Path) -> None:
    workflow = load(path)

    assert workflow.name == ("region" if path.stem == "sub-workflow-child" else path.stem)


@each_example
def test_an_example_gives_no_cause_for_a_warning(path: Path) -> None:
    assert lint(path) == []


@each_example
def test_an_example_fits_the_schema_that_editors_use(path: Path) -> None:
    written = plain(parse(decode(path.read_bytes(), path.name)))

    assert [error.message for error in VALIDATOR.iter_errors(written)] == []


@each_example
def test_an_example_can_be_drawn(path: Path) -> None:
    workflow = load(path)

    mermaid, svg = draw_mermaid(workflow), draw_svg(workflow)

    assert all(step.name in mermaid and step.name in svg for step in workflow.steps)


@each_example
def test_an_example_that_can_be_rehearsed_is(path: Path) -> None:
    found = notes(path)

    assert found.keys() - {"inputs"} == {"about", "rehearsed" if can_be_rehearsed(load(path)) else "not rehearsed"}


@each_rehearsal
def test_a_rehearsal_ends_as_the_example_says(path: Path, tmp_path: Path) -> None:
    workflow, found = load(path), notes(path)
    given: dict[str, Any] = json.loads(found.get("inputs", "{}"))

    history = rehearse(workflow, tmp_path, inputs=check_inputs(workflow, given))

    steps = ", ".join(f"{step} {status}" for step, status in history.statuses.items())
    assert f"{history.status}; {steps}" == found["rehearsed"]


def test_the_index_has_a_line_for_every_example_and_no_other() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")

    lines = re.findall(r"^\| \[.*$", index, re.MULTILINE)

    assert lines == [index_line(path) for path in EXAMPLES]


# What an example showed beyond its statuses.


def rehearsed(name: str, folder: Path, **inputs: Any) -> Any:
    workflow = load(FOLDER / f"{name}.yaml")
    return rehearse(workflow, folder, inputs=check_inputs(workflow, inputs))


def test_undo_takes_back_the_last_thing_first(tmp_path: Path) -> None:
    rehearsed("undo", tmp_path)

    assert (tmp_path / "undone.txt").read_text() == "called back parcel-7\nreleased seat-12\n"


def test_the_four_strategies_give_the_outputs_that_their_comments_promise(tmp_path: Path) -> None:
    history = rehearsed("handlers", tmp_path)

    assert {name: history[name].output for name in history.statuses} == {
        "recovered": "built with -j1",
        "repaired": "deployed",
        "replaced": {"rates": "yesterday", "reason": "EXIT_NONZERO"},
        "cleaned": None,
        "judged": "4 means: nothing to do",
        "shared": "tidied",
    }
    assert not (tmp_path / "scratch").exists()


def test_a_value_with_a_command_in_it_is_one_word_everywhere(tmp_path: Path) -> None:
    history = rehearsed("values", tmp_path)

    assert (tmp_path / "my $(reboot); file.txt").read_text() == "hello\n"
    assert history["stem"].output == "my $(reboot); file"
    assert history["literal"].output == "world is the shell's own, and so is a home; ${inputs.file} is only text"


def test_outputs_keep_the_types_of_their_expressions(tmp_path: Path) -> None:
    history = rehearsed("inputs", tmp_path, target="prod", regions='["east", "west"]')

    assert history.ended.outputs == {
        "text": 'plan: 4 replicas in ["east","west"], team core\nprod gets 0.5 of the traffic',
        "replicas": 4,
        "is_real": True,
    }


def test_an_alert_gets_the_context_of_the_failure(tmp_path: Path) -> None:
    rehearsed("failure-alert", tmp_path)

    head, _, rest = (tmp_path / "page.txt").read_text().partition("\n")
    assert head == "MULLIGAN_FAILURE_ROUTE_CONTEXT v1"
    assert "disk full" in rest
