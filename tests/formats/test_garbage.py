"""Whatever stands in a foreign file, it is read or refused in words; and what is read is converted to the same."""

from __future__ import annotations

import copy
import functools
import json
import random
import re
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from operator import getitem
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.nightly import examples

from mulligan.core.model.workflow import encode
from mulligan.errors import LanguageError
from mulligan.formats import FORMATS, convert, examine
from mulligan.formats.loading import parse_file
from mulligan.formats.torc.sweeps import is_same
from mulligan.language.text.document import decode
from mulligan.language.text.nodes import plain

from .test_examples import EXAMPLES, Example

# What somebody may have written, or a program, in the place of something else.
GARBAGE: list[Any] = [
    *(None, True, False, 0, 1, -1, 3, 1.5, 10**12, "", " ", "x", "0", "end", "a b", "a-b", "ä", "/x", "\n", "a\nb\n"),
    *(
        "${",
        "${x}",
        "${x.y}",
        "$x",
        "${inputs.x}",
        "$${x}",
        "{{",
        "{{ x }}",
        "{% if %}",
        "{x}",
        "{x:03d}",
        "[",
        "(",
        "*",
    ),
    *("1:10", "[1,2]", "30s", "2g", "-", "../x", "'", '"', "`", "\\", "#", "a: b", "yes"),
    *([], {}, [None], [""], ["x"], [["x"]], [{}], {"x": None}, {"x": "y"}, {"": ""}, {"x": {"y": ["z"]}}),
]
# What Python calls its things, which no user should see.
PYTHON = re.compile(r" object at 0x|<mulligan|<class|Traceback|internal\.bug")
# Of each file: the tests are many, and it is the files that differ.
ROUNDS = examples(2, 5)


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything in a value but itself."""
    for key, child in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*way, key)
        yield from places(child, (*way, key))


def spoilt(value: Any, chance: random.Random) -> Any:
    """The value with something in it replaced, left out, doubled, or called otherwise."""
    value = copy.deepcopy(value)
    *way, last = chance.choice(list(places(value)))
    holder = value
    for key in way:
        holder = holder[key]
    kind = chance.randrange(6)
    if kind == 0:
        del holder[last]
    elif kind == 1 and isinstance(holder, list):
        holder.append(copy.deepcopy(holder[last]))
    elif kind == 1:
        holder[f"{last}x"] = holder.pop(last)
    else:
        holder[last] = copy.deepcopy(chance.choice(GARBAGE))
    return value


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: f"{one.system}/{one.path.name}")
def test_a_spoilt_file_is_read_or_refused_in_words(example: Example, tmp_path: Path) -> None:
    value = plain(parse_file(decode(example.path.read_bytes(), str(example.path))))
    chance = random.Random(example.path.name)
    ours = tmp_path / "ours.yaml"
    for _ in range(ROUNDS):
        text = json.dumps(spoilt(value, chance), indent=1)
        path = tmp_path / "spoilt.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            workflow = examine(path, named=example.system).workflow
        except LanguageError as refused:
            assert all(problem.line and problem.message for problem in refused.problems), refused.render()
            assert not PYTHON.search(refused.render()), refused.render()
            continue

        ours.write_text(convert(path, named=example.system).text, encoding="utf-8")

        again, workflow = examine(ours).workflow, msgspec.structs.replace(workflow, origin="")
        if example.system == "torc" and "matrix:" in ours.read_text(encoding="utf-8"):
            # A sweep is written as a matrix, which is compared step by step.
            assert is_same(workflow, again), text
        else:
            assert _all_of(again) == _all_of(workflow), text


# What Python itself cannot do, each in one of the ways that a file may ask for it.
EXCESS: dict[str, Any] = {
    "parentheses": "{{ " + "(" * 100 + "1" + ")" * 100 + " }}",
    "negations": "{{ " + "not " * 400 + "x }}",
    "conditions": "{% if x %}" * 400 + "{% endif %}" * 400,
    "digits of a template": "{{ " + "9" * 5000 + " }}",
    "a sum in a template": "{{ " + "+".join(["1"] * 3000) + " }}",
    "a sum": "+".join(["1"] * 20_000),
    "signs": "-" * 100_000 + "1",
    "digits": "9" * 5000,
    "digits of an expression": "${inputs.x[" + "9" * 5000 + "]}",
    "parentheses of an expression": "${" + "(" * 400 + "1" + ")" * 400 + "}",
    "negations of an expression": "${" + "!" * 3000 + "true}",
    "a long time": "9" * 400 + "h",
    "a large size": "9" * 400 + "g",
    "a range": "1:" + "9" * 400,
    "groups of an expression": "(" * 3000 + ")" * 3000,
    "commands in commands": "$(" * 1000 + ")" * 1000,
    "filters": "${x" + "|upper" * 500 + "}",
    "an index": "$" + "[0]" * 3000,
    "a large number": 10**400,
    "a list in lists": json.loads("[" * 60 + "1" + "]" * 60),
    "a mapping in mappings": json.loads('{"a":' * 60 + "1" + "}" * 60),
}
OURS = Path(__file__).parents[2] / "examples" / "agent-review.yaml"


@pytest.mark.parametrize("system", [*FORMATS, "mulligan"])
def test_what_asks_too_much_of_python_is_read_or_refused_in_words(system: str, tmp_path: Path) -> None:
    paths = [one.path for one in EXAMPLES if one.system == system and one.path.suffix != ".kdl"] or [OURS]
    path = max(paths, key=lambda one: len(one.read_bytes()))
    value = plain(parse_file(decode(path.read_bytes(), str(path))))
    ways = [way for way in places(value) if not isinstance(functools.reduce(getitem, way, value), dict | list)]
    chance = random.Random(system)
    for what, excess in EXCESS.items():
        for *way, last in chance.sample(ways, 2):
            wrong = copy.deepcopy(value)
            functools.reduce(getitem, way, wrong)[last] = excess
            file = tmp_path / "excess.yaml"
            file.write_text(json.dumps(wrong), encoding="utf-8")
            try:
                examine(file, named=None if system == "mulligan" else system)
            except LanguageError as refused:
                shown = refused.render()
                assert all(problem.line and problem.message for problem in refused.problems), what
                assert not PYTHON.search(shown), shown


DEEP = "it is nested too deep, or a calculation in it is too long"


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("input", "{{ " + "(" * 100 + "1" + ")" * 100 + " }}", f"this template is invalid: {DEEP}"),
        ("input", "{{ " + "not " * 400 + "x }}", f"this template is invalid: {DEEP}"),
        ("input", "{% if x %}" * 400 + "{% endif %}" * 400, f"this template is invalid: {DEEP}"),
        ("input", "{% for x in y %}" * 25 + "{% endfor %}" * 25, f"this template is invalid: {DEEP}"),
        ("input", "{{ " + "+".join(["1"] * 3000) + " }}", f"this template is invalid: {DEEP}"),
        ("input", "{{ " + "9" * 5000 + " }}", "this template is invalid: a number in it is too long"),
        ("code", "result = " + "+".join(["1"] * 20_000), f"this Python code is invalid: {DEEP}"),
        ("code", "result = " + "-" * 100_000 + "1", f"this Python code is invalid: {DEEP}"),
        ("code", "result = " + "-" * 1_500 + "1", f"this Python code is invalid: {DEEP}"),
    ],
)
def test_a_playbook_that_asks_too_much_of_python_is_refused_at_its_place(
    key: str, text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "playbook.yaml"
    tool = {"kind": "python", "code": "result = 1"} | {key: text if key == "code" else {"x": text}}
    steps = f"- step: start\n  tool: {json.dumps(tool)}\n"
    path.write_text(f"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: x}}\nworkflow:\n{steps}")

    with pytest.raises(LanguageError) as refused:
        examine(path)

    assert [(problem.message, problem.line) for problem in refused.value.problems] == [(message, 6)]


def test_a_constant_is_not_calculated_when_a_playbook_is_read(tmp_path: Path) -> None:
    path = tmp_path / "playbook.yaml"
    text = "{{ 'a'|center(3000000000) }}" + "{% autoescape 'a'|center(3000000000) %}{% endautoescape %}" + "x" * 200
    tool = {"kind": "shell", "cmds": [text]}
    steps = f"- step: start\n  tool: {json.dumps(tool)}\n"
    path.write_text(f"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: x}}\nworkflow:\n{steps}")

    with limited_memory():
        assert len(examine(path).workflow.steps) == 1


@contextmanager
def limited_memory() -> Iterator[None]:
    """No more than a gibibyte beyond what this process has."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


# A name that is spelled wrong, in a place of each system's files where values are filled in.
MISSPELLED = {
    "noetl": (
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: x}\nworkload: {target: a}\n"
        "workflow:\n- step: start\n  tool: {kind: shell, cmds: ['echo {{ workload.targt }}']}\n"
    ),
    "prodigy in a script": "- shell: echo a\n  capture: target\n- shell: echo ${targt}\n",
    "prodigy in a text": "- shell: echo a\n  capture: target\n- claude: /mend ${targt}\n",
    "mulligan": "inputs: {target: {}}\nsteps:\n- step: a\n  shell: echo ${inputs.targt}\n",
}


@pytest.mark.parametrize("what", MISSPELLED)
def test_a_name_that_is_spelled_wrong_is_answered_with_the_one_that_is_meant(what: str, tmp_path: Path) -> None:
    path = tmp_path / "file.yml"
    path.write_text(MISSPELLED[what], encoding="utf-8")
    try:
        problems = [*examine(path).warnings]
    except LanguageError as refused:
        problems = refused.problems

    found = [(problem.code.rpartition(".")[2][:8], problem.hint) for problem in problems if "targt" in problem.message]
    assert found == [("unknown_", "did you mean 'target'?")]


def test_a_tool_of_the_workbook_is_found_by_its_name_and_an_unknown_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "playbook.yaml"
    text = (
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: x}\n"
        "workbook: [{name: double, tool: {kind: python, code: result = 2}}]\n"
        "workflow: [{step: start, tool: {kind: workbook, name: NAME}}]\n"
    )
    path.write_text(text.replace("NAME", "double"), encoding="utf-8")
    assert "result = 2" in convert(path).text

    for wrong, message in (
        ("doubel", "there is no 'doubel' in the workbook"),
        ("[1]", "'name' is a list, a name is expected"),
    ):
        path.write_text(text.replace("NAME", wrong), encoding="utf-8")
        with pytest.raises(LanguageError) as refused:
            examine(path)
        assert [problem.message for problem in refused.value.problems] == [message]


# Where the steps are in the files of a system, and the keys of the name and of something else in them.
STEPS = {
    "torc": ("jobs", "name", "command"),
    "alphred": ("nodes", "nodeKey", "nodeType"),
    "noetl": ("workflow", "step", "tool"),
    "mulligan": ("steps", "step", "shell"),
}


@pytest.mark.parametrize("system", STEPS)
def test_a_step_that_is_refused_is_no_reason_to_refuse_what_refers_to_it(system: str, tmp_path: Path) -> None:
    section, name, other = STEPS[system]
    paths = [one.path for one in EXAMPLES if one.system == system and one.path.suffix != ".kdl"] or [OURS]
    for path in sorted(paths)[:4]:
        shutil.copytree(path.parent, tmp_path, dirs_exist_ok=True)
        value = plain(parse_file(decode(path.read_bytes(), str(path))))
        for at, step in enumerate(value.get(section, ())):
            for spoilt_step in (7, {**step, name: {"x": 1}}, {**step, other: [[7]]}):
                wrong = copy.deepcopy(value)
                wrong[section][at] = spoilt_step
                file = tmp_path / "spoilt.yaml"
                file.write_text(json.dumps(wrong, indent=1), encoding="utf-8")

                with pytest.raises(LanguageError) as refused:
                    examine(file, named=None if system == "mulligan" else system)

                codes = [problem.code for problem in refused.value.problems]
                assert not {"language.unknown_step", "language.unknown_job"} & {*codes}, refused.value.render()


def _all_of(workflow: Any) -> Any:
    return json.loads(encode(msgspec.structs.replace(workflow, origin="")))
