"""Whatever stands in a foreign file, it is read or refused in words; and what is read is converted to the same."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mulligan.core.model.workflow import encode
from mulligan.errors import LanguageError
from mulligan.formats import convert, examine
from mulligan.formats.loading import parse_file
from mulligan.formats.torc.sweeps import is_same
from mulligan.language.document import decode
from mulligan.language.nodes import plain

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
# Of each file: the tests are many, and it is the files that differ.
ROUNDS = 8


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
            continue

        ours.write_text(convert(path, named=example.system).text, encoding="utf-8")

        again, workflow = examine(ours).workflow, msgspec.structs.replace(workflow, origin="")
        if example.system == "torc" and "matrix:" in ours.read_text(encoding="utf-8"):
            # A sweep is written as a matrix, which is compared step by step.
            assert is_same(workflow, again), text
        else:
            assert _all_of(again) == _all_of(workflow), text


def _all_of(workflow: Any) -> Any:
    return json.loads(encode(msgspec.structs.replace(workflow, origin="")))
