"""Showing what a corrected file changes, before a run continues with it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from mulligan.cli.output.terminal import complain
from mulligan.service.rendering.formatting import format_input, group_title
from mulligan.service.rendering.json_output import to_json
from mulligan.service.runs.changes.corrections import ChangedSteps, Correction
from mulligan.service.runs.changes.round_plans import ForkResult, RetryResult

# Steps whose changes are named one by one; --json has them all.
_STEPS_MAX, _NAMES_MAX = 20, 10


def plan_as_json(planned: RetryResult | ForkResult) -> dict[str, Any]:
    """The plan of a round or of a fork, as it is printed before anything is done."""
    found: dict[str, Any] = to_json(planned)
    return {name: value for name, value in found.items() if name not in ("dry_run", "status", "fork_run_id")}


def show_correction(planned: RetryResult) -> None:
    """Show what the file changes, step by step; nothing if no file was given."""
    found = planned.correction
    if found is None:
        return
    file = os.path.relpath(found.file) if found.file else "the file"
    if found.is_same:
        complain(f"note: '{file}' has not changed since run {planned.run_id} read it")
        return
    complain(f"what '{file}' changes:")
    for line in [*_steps(found), *_beside(found)]:
        complain(f"  {line}")


def _steps(found: Correction) -> list[str]:
    families = found.families[:_STEPS_MAX]
    shown = [(group_title(one.step, one.count) if one.count > 1 else one.step, one) for one in families]
    width = max((len(name) for name, _ in shown), default=0)
    lines = [f"added    {list_names(found.added)}"] if found.added else []
    lines += [f"removed  {list_names(found.removed)}"] if found.removed else []
    lines += [f"changed  {name:<{width}}  {', '.join(one.keys)}{_kept(one)}".rstrip() for name, one in shown]
    left = sum(one.count for one in found.families[_STEPS_MAX:])
    return [*lines, f"changed  {left:,} more steps"] if left > 0 else lines


def _kept(one: ChangedSteps) -> str:
    if not one.kept:
        return ""
    return "  (keeps its result)" if one.count == 1 else f"  ({one.kept:,} keep their results)"


def _beside(found: Correction) -> list[str]:
    lines = [f"differs  {one}" for one in found.differences[:_NAMES_MAX]]
    if (left := len(found.differences) - _NAMES_MAX) > 0:
        lines.append(f"differs  at {left:,} more calls")
    lines += [f"changed  the workflow itself: {', '.join(found.settings)}"] if found.settings else []
    lines += [f"input    {_values(found.inputs)}"] if found.inputs else []
    if found.inputs_kept:
        lines.append(f"note: the run keeps its inputs although their defaults changed: {_values(found.inputs_kept)}")
    if found.lost_undos:
        lines.append(f"note: nothing will undo {list_names(found.lost_undos)}: the file has no undo any more")
    return lines


def _values(inputs: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={format_input(value)}" for name, value in inputs.items())


def list_names(names: Sequence[str]) -> str:
    """The first of them: `a, b and 12 more`."""
    shown = ", ".join(names[:_NAMES_MAX])
    return f"{shown} and {len(names) - _NAMES_MAX:,} more" if len(names) > _NAMES_MAX else shown
