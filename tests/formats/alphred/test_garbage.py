"""Whatever stands in a file: it is read, or refused with a place in it. Nothing else ever happens."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mulligan.errors import LanguageError
from mulligan.formats import examine
from mulligan.formats.loading import parse_file
from mulligan.language.text.document import decode
from mulligan.language.text.nodes import plain

FOLDER = Path(__file__).parents[3] / "examples/formats/alphred"
EXAMPLES = sorted(path for path in FOLDER.iterdir() if path.suffix in (".json", ".json5"))
GARBAGE = [
    None,
    True,
    False,
    0,
    -1,
    7,
    1.5,
    "",
    " ",
    "a",
    "end",
    "${",
    "${x}",
    "write",
    [],
    {},
    [None],
    {"a": 1},
    "\u2028",
]


def spoilt(value: Any, rng: Random) -> Any:
    """The value with something in it replaced, taken away, or given twice."""
    if rng.random() < 0.03:
        return rng.choice(GARBAGE)
    if isinstance(value, dict):
        kept = [(key, spoilt(one, rng)) for key, one in value.items() if rng.random() > 0.02]
        return dict(kept) | ({rng.choice(["foo", "nodes", "phases", "when"]): 1} if rng.random() < 0.01 else {})
    if isinstance(value, list):
        return [spoilt(one, rng) for one in value for _ in range(2 if rng.random() < 0.03 else 1)]
    return value


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_a_spoilt_file_is_read_or_refused(path: Path):
    whole = plain(parse_file(decode(path.read_bytes(), str(path))))

    for seed in range(40):
        text = json.dumps(spoilt(whole, Random(f"{path.name} {seed}")), indent=1)
        try:
            examine(Path("w.json"), text=text, named="alphred")
        except LanguageError as refused:
            assert all(1 <= problem.line <= text.count("\n") + 1 for problem in refused.problems), text
