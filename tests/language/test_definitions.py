"""Definitions that another process has compiled: what the language makes is taken, and what it never makes refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from mulligan.core.model.workflow import encode
from mulligan.errors import InputInvalid, LanguageError
from mulligan.formats import load
from mulligan.language import load_text
from mulligan.language.python.definitions import read_definition

EXAMPLES = Path(__file__).parents[2] / "examples"
TEXT = """
name: nightly
inputs:
  target: {default: staging}
breakers:
  warehouse: {failures: 3}
steps:
  - step: build
    shell: make ${inputs.target}
    breaker: warehouse
    timeout: 5m
    retry: {rules: [{pattern: "disk (full|quota)", max_retries: 2}]}
  - step: each
    needs: [build]
    map: {over: [a, b]}
    do:
      - shell: echo ${item}
  - step: deploy
    needs: [each]
    shell: echo ${steps.build.output}
    next:
      - to: end
        when: steps.deploy.output != ""
"""


def test_every_example_is_accepted_byte_for_byte() -> None:
    found = 0
    for path in sorted((*EXAMPLES.rglob("*.yaml"), *EXAMPLES.rglob("*.yml"))):
        try:
            workflow = load(path)
        except LanguageError:
            continue
        found += 1
        workflow = msgspec.structs.replace(workflow, schedules={})
        assert read_definition(encode(workflow)) == (workflow, encode(workflow)), path
    assert found > 20


def changed(definition: dict[str, Any], *path: Any, to: Any) -> bytes:
    """The definition with another value at this path."""
    *above, last = path
    part: Any = definition
    for key in above:
        part = part[key]
    part[last] = to
    return msgspec.json.encode(definition)


REFUSED: dict[str, tuple[Any, ...]] = {
    "a name that leads out of a folder": ("steps", 0, "name", "../../etc"),
    "a name of a place": ("steps", 0, "name", "build.undo@1"),
    "the name of the last step": ("steps", 0, "name", "end"),
    "a name twice": ("steps", 0, "name", "deploy"),
    "no name": ("name", ""),
    "a name of two lines": ("name", "a\nb"),
    "a need of nothing": ("steps", 2, "needs", [{"of": "nothing"}]),
    "a group of nothing": ("steps", 2, "needs", [{"of": "nothing", "is_group": True}]),
    "a group with a stranger": ("groups", {"all": ["stranger"]}),
    "an edge to nothing": ("steps", 2, "edges", 0, "to", "nothing"),
    "an edge out of order": ("steps", 2, "edges", 0, "index", 7),
    "a breaker that is not declared": ("steps", 0, "breaker", "other"),
    "a binding that is not there": ("steps", 0, "action", "params", {"text": {"${}": "x"}}),
    "a child that is not there": ("steps", 0, "action", {"kind": "workflow", "params": {"file": "x.yaml"}}),
    "a child without a file": ("steps", 0, "action", {"kind": "workflow"}),
    "a last step of another name": ("end", "name", "last"),
    "a number that no database has": ("steps", 0, "max_visits", 10**30),
    "a budget that is no number": ("budget", {"cost": "NaN"}),
    "very many targets of notices": ("notify", [{"on": ["failed"], "to": [f"t{n}" for n in range(1000)]}]),
    "very many rules of notices": ("notify", [{"on": ["failed"], "to": ["ops"]}] * 1000),
    "a target that is no name": ("notify", [{"on": ["failed"], "to": ["a\nb"]}]),
    "an expression that hides what it reads": ("steps", 2, "edges", 0, "when", {"source": "steps.build.output"}),
    "an expression that is none": ("steps", 2, "edges", 0, "when", {"source": "1 +"}),
    "a pattern that is none": ("steps", 0, "rules", 0, "pattern", "("),
    "a pattern that backtracks": ("steps", 0, "rules", 0, "pattern", r"(a|b)*(a|b)*\1"),
    "a time that no clock has": ("steps", 0, "timeout", 1e300),
    "a time before the start": ("steps", 0, "timeout", -1.0),
    "a delay that no clock has": ("steps", 0, "rules", 0, "backoff", {"delays": [1e300]}),
    "items without commands": ("steps", 1, "do", []),
    "a worktree that nothing opens": ("workspace", {"opens": "x", "closes": "y"}),
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=list(REFUSED))
def test_a_definition_that_no_text_compiles_to_is_refused(change: tuple[Any, ...]) -> None:
    *path, value = change
    data = encode(load_text(TEXT))
    assert read_definition(data)[1] == data

    with pytest.raises(InputInvalid):
        read_definition(changed(msgspec.json.decode(data), *path, to=value))


def test_the_definition_of_a_child_is_checked_too() -> None:
    whole = msgspec.json.decode(encode(load_text(TEXT)))
    child = msgspec.json.decode(encode(load_text(TEXT)))
    child["steps"][0]["name"] = "../x"

    with pytest.raises(InputInvalid):
        read_definition(changed(whole, "children", to={"child.yaml": child}))


def test_when_runs_start_is_no_part_of_a_definition() -> None:
    text = TEXT + "schedules:\n  nightly: {cron: '0 2 * * *'}\n"

    assert read_definition(encode(load_text(text)))[1] == encode(load_text(TEXT))
