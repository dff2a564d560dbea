"""JSON that is printed part by part: the same text as that of `json.dumps`, without holding all of it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any

import pytest

from mulligan.cli.output.terminal import show_json, show_json_parts

RUN: dict[str, Any] = {
    "run_id": 1,
    "steps": {"a": {"output": [1, {"b": "é\n"}], "waiting_for": []}, "b": {}},
    "data": {},
    "reason": "",
}


def parts(value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, one in value.items():
        yield key, iter(one.items()) if key == "steps" else one


@pytest.mark.parametrize(
    "value",
    [[], {}, [[], {}], "é\U0001f600\ud800", 1e16, -0.0, 10**30, float("nan"), {"a": [float("inf")]}, RUN],
    ids=["list", "mapping", "empty", "characters", "large", "zero", "long", "no number", "infinite", "run"],
)
def test_a_value_is_printed_as_json_indents_it(value: Any) -> None:
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)

    with redirect_stdout(out):
        show_json(value)

    assert out.buffer.getvalue().decode() == json.dumps(value, indent=2) + "\n"  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", [RUN, {**RUN, "steps": {}}, {}], ids=["steps", "no steps", "nothing"])
def test_parts_are_printed_as_one_object(value: dict[str, Any]) -> None:
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)

    with redirect_stdout(out):
        show_json_parts(parts(value))

    assert out.buffer.getvalue().decode() == json.dumps(value, indent=2) + "\n"  # type: ignore[attr-defined]
