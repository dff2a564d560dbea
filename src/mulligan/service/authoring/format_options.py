"""Options for files of some systems, as faces take them. Files of other systems refuse them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mulligan.errors import InputInvalid

MAX_ITERATIONS = 10_000


def read_format_options(patterns: Sequence[str] | None, iterations: int | None) -> dict[str, Any]:
    """The options that are given, by name. `InputInvalid` for values that make no sense."""
    if iterations is not None and not (type(iterations) is int and 1 <= iterations <= MAX_ITERATIONS):
        message = f"--max-iterations must be a whole number from 1 to {MAX_ITERATIONS:,}, not {iterations}"
        raise InputInvalid(message)
    if patterns and iterations is not None:
        hint = "leave one of them out: with --map the steps run once for each file"
        raise InputInvalid("--map and --max-iterations cannot be combined", hint=hint)
    if "" in (patterns or ()):
        raise InputInvalid("--map has an empty pattern", hint="write it like 'specs/*.md'")
    given = {"map": list(patterns) if patterns else None, "max_iterations": iterations}
    return {name: value for name, value in given.items() if value is not None}
