"""Options of `run` that are only for files of some systems. Files of other systems refuse them."""

from __future__ import annotations

from typing import Annotated, Any

from mulligan.cli.parameters import Option
from mulligan.cli.terminal import UsageRefused

MAX_ITERATIONS = 10_000

MapPatterns = Annotated[
    list[str] | None,
    Option("--map", metavar="PATTERN", help="In a Prodigy file, run the steps for each matching file (repeatable)."),
]
MaxIterations = Annotated[
    int | None,
    Option("--max-iterations", metavar="N", help="In a Prodigy file, run the steps N times, or until nothing changes."),
]


def given_options(patterns: list[str] | None, iterations: int | None) -> dict[str, Any]:
    """The options that are given, by name."""
    if iterations is not None and not 1 <= iterations <= MAX_ITERATIONS:
        raise UsageRefused(f"--max-iterations must be from 1 to {MAX_ITERATIONS:,}, not {iterations}")
    if patterns and iterations is not None:
        hint = "leave one of them out: with --map the steps run once for each file"
        raise UsageRefused("--map and --max-iterations cannot be combined", hint=hint)
    if "" in (patterns or ()):
        raise UsageRefused("--map has an empty pattern", hint="write it like --map 'specs/*.md'")
    given = {"map": patterns or None, "max_iterations": iterations}
    return {name: value for name, value in given.items() if value is not None}
