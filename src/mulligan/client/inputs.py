"""Inputs as a program gives them: `datetime`, `Path`, dataclasses and the like become JSON, as outputs of steps do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from mulligan.errors import InputInvalid

_PLAIN = (str, int, float, bool, type(None))


def plain_inputs(given: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs as JSON. Raises `InputInvalid` for a value that cannot be one."""
    return {name: value if type(value) in _PLAIN else _plain(name, value) for name, value in given.items()}


def _plain(name: str, value: Any) -> Any:
    # Loaded only if a program gives more than texts and numbers.

    def refuse_files() -> NoReturn:
        raise InputInvalid(
            f"input '{name}' contains a table or an array",
            hint="write it to a file and give the path, or make it in a step",
            input=name,
        )

    from mulligan.values import encoding

    try:
        return json.loads(encoding.encode(value, refuse_files, label=f"input '{name}'"))
    except encoding.ValueRefused as problem:
        # The advice is for a step.
        text = str(problem).replace("; return ", "; give ", 1)
        raise InputInvalid(text, input=name) from None
