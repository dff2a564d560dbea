"""The check of parameters at the start of a run."""

from __future__ import annotations

from typing import Any

from mulligan import StepError
from mulligan.formats.prodigy.parameter_rules import find_problem


def check_parameters(values: dict[str, Any], rules: dict[str, list[list[Any]]]) -> None:
    """Raise StepError if a parameter breaks one of its rules."""
    problems = [
        f"'{name}' {problem}" for name, listed in rules.items() if (problem := find_problem(values.get(name), listed))
    ]
    if problems:
        raise StepError("INPUT_INVALID", "; ".join(problems), retryable=False)
