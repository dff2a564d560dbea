"""Options of `run` that are only for files of some systems. Files of other systems refuse them."""

from __future__ import annotations

from typing import Annotated

from mulligan.cli.words.parameters import Option

MapPatterns = Annotated[
    list[str] | None,
    Option("PATTERN", "In a Prodigy file, run the steps for each matching file (repeatable).", "--map"),
]
MaxIterations = Annotated[
    int | None, Option("N", "In a Prodigy file, run the steps N times, or until nothing changes.", "--max-iterations")
]
