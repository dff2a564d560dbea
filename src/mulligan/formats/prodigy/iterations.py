"""The options `--map` and `--max-iterations`: the steps of a regular workflow run several times, one after the other.

The steps become a loop. It begins with the step `iteration`, which says what this pass is for, and ends with the step
`repeat`, which leads back to it or on to the merge. The options are defaults of inputs, so a run keeps them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.formats.prodigy.context import TranslatedSteps
from mulligan.formats.prodigy.repository import Worktree
from mulligan.formats.prodigy.steps import translate_steps
from mulligan.formats.table import OPTION_MARK
from mulligan.formats.translation import made
from mulligan.language.text.nodes import Sequence

MAP, MAX_ITERATIONS = "map", "max_iterations"
_CALLS = "mulligan.formats.prodigy.runtime"
VISITS_MAX = 10_000


class Passes:
    """The steps of a regular workflow, which run several times if an option asks for it."""

    def __init__(self, steps: Sequence, inputs: dict[str, Any]) -> None:
        # Those of the workflow, and those that the options become.
        self.inputs = inputs
        self._steps = steps
        self._first: dict[str, Any] = {}
        self._last: dict[str, Any] = {}

    def translated(self, run: Worktree) -> TranslatedSteps:
        """The steps of the file; between those of the loop, if an option asks for one."""
        context, at = run.context, self._steps
        options = context.translation.options
        if not options:
            return translate_steps(self._steps, context)
        taken = next((name for name in options if name in self.inputs), None)
        if taken is not None:
            message = f"--{taken.replace('_', '-')} cannot be given: the workflow has a parameter '{taken}'"
            raise context.source.refuse("prodigy", message, at, hint="rename the parameter")
        take = context.slots.take
        if MAP in options:
            about = f"{OPTION_MARK}map: the steps run for each file that matches"
            self.inputs |= {MAP: {"type": "array", "default": made(list(options[MAP]), at), "description": about}}
            listing = take("map_inputs")
            args = {"patterns": f"${{inputs.{MAP}}}", "arguments": "${inputs.args}"}
            # It runs where the run was started: the files need not be in the worktree.
            before = [{"step": listing.name, "python": made({"call": f"{_CALLS}:list_inputs"}, at), "args": args}]
            source = {"inputs": f"${{{listing.output}}}"}
            names = {"ARG": "argument", "INDEX": "number", "TOTAL": "total", "FILE_PATH": "path"}
        else:
            about = f"{OPTION_MARK}max-iterations: the steps run so often, or until nothing changes"
            given = {"type": "integer", "default": options[MAX_ITERATIONS], "description": about}
            self.inputs |= {MAX_ITERATIONS: given}
            before, source = [], {"total": f"${{inputs.{MAX_ITERATIONS}}}"}
            names = {"ITERATION": "number", "iteration": "number"}
        begin, end = take("iteration"), take("repeat")
        self._first = {
            "step": begin.name,
            "python": made({"call": f"{_CALLS}:begin_iteration"}, at),
            # Not its number of visits: a retry of this step is still the same pass.
            "args": {"number": f"${{{end.output} == null ? 1 : {end.output}.next}}", **source},
            "cwd": context.cwd,
        }
        self._last = {
            "step": end.name,
            "python": made({"call": f"{_CALLS}:end_iteration"}, at),
            "args": {"iteration": f"${{{begin.output}}}"},
            "cwd": context.cwd,
            "take": "first",
            "next": [{"to": begin.name, "when": f"{end.output}.is_repeated"}],
        }
        inside = context.with_variables({name: f"{begin.output}.{field}" for name, field in names.items()})
        if MAP in options:
            inside = msgspec.structs.replace(inside, arguments=f"{begin.output}.argument")
        done = translate_steps(self._steps, inside)
        return TranslatedSteps([*before, self._first, *done.commands, self._last], done.context)

    def closed(self, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """All steps of the workflow. Those in the loop may run often, and its end leads to the step after it."""
        if not self._first:
            return steps
        names = [step["step"] for step in steps]
        first, last = names.index(self._first["step"]), names.index(self._last["step"])
        self._last["next"].append({"to": names[last + 1]})
        # An edge leads to it, so it does not follow the step before it by the order of the steps.
        self._first["needs"] = [names[first - 1]]
        return [{**step, "max_visits": VISITS_MAX} if first <= at <= last else step for at, step in enumerate(steps)]
