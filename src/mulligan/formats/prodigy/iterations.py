"""The options `--map` and `--max-iterations`: the steps of a regular workflow run several times, one after the other.

The steps become a loop. It begins with the step `iteration`, which says what this pass is for, and ends with the step
`repeat`, which leads back to it or on to the merge. The options are defaults of inputs, so a run keeps them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mulligan.formats.prodigy.context import Context, StepSlots
from mulligan.formats.translation import OPTION_MARK, made
from mulligan.language.text.nodes import Node

MAP, MAX_ITERATIONS = "map", "max_iterations"
_CALLS = "mulligan.formats.prodigy.runtime"
VISITS_MAX = 10_000


class Iterations(NamedTuple):
    """The inputs that the options become, the steps before and after those of the file, and the variables in them."""

    inputs: dict[str, Any]
    before: list[dict[str, Any]]
    after: list[dict[str, Any]]
    variables: dict[str, str]
    arguments: str


def translate_options(context: Context, inputs: dict[str, Any], at: Node) -> Iterations | None:
    """The loop that the options ask for; None if there is no option."""
    options = context.translation.options
    if not options:
        return None
    taken = next((name for name in options if name in inputs), None)
    if taken is not None:
        message = f"--{taken.replace('_', '-')} cannot be given: the workflow has a parameter '{taken}'"
        raise context.source.refuse("prodigy", message, at, hint="rename the parameter")
    assert isinstance(context.slots, StepSlots)
    take = context.slots.take
    if MAP in options:
        about = f"{OPTION_MARK}map: the steps run for each file that matches"
        given = {MAP: {"type": "array", "default": made(list(options[MAP]), at), "description": about}}
        listing = take("map_inputs")
        args = {"patterns": f"${{inputs.{MAP}}}", "arguments": "${inputs.args}"}
        # It runs where the run was started: the files need not be in the worktree.
        before = [{"step": listing.name, "python": made({"call": f"{_CALLS}:list_inputs"}, at), "args": args}]
        source = {"inputs": f"${{{listing.output}}}"}
    else:
        about = f"{OPTION_MARK}max-iterations: the steps run so often, or until nothing changes"
        given = {MAX_ITERATIONS: {"type": "integer", "default": options[MAX_ITERATIONS], "description": about}}
        before, source = [], {"total": f"${{inputs.{MAX_ITERATIONS}}}"}
    begin, end = take("iteration"), take("repeat")
    first = {
        "step": begin.name,
        "python": made({"call": f"{_CALLS}:begin_iteration"}, at),
        # Not its number of visits: a retry of this step is still the same pass.
        "args": {"number": f"${{{end.output} == null ? 1 : {end.output}.next}}", **source},
        "cwd": context.cwd,
    }
    last = {
        "step": end.name,
        "python": made({"call": f"{_CALLS}:end_iteration"}, at),
        "args": {"iteration": f"${{{begin.output}}}"},
        "cwd": context.cwd,
        "take": "first",
        "next": [{"to": begin.name, "when": f"{end.output}.is_repeated"}],
    }
    names = {"ARG": "argument", "INDEX": "number", "TOTAL": "total", "FILE_PATH": "path"}
    if MAP not in options:
        names = {"ITERATION": "number", "iteration": "number"}
    variables = {name: f"{begin.output}.{field}" for name, field in names.items()}
    arguments = f"{begin.output}.argument" if MAP in options else ""
    return Iterations(given, [*before, first], [last], variables, arguments)


def close_loop(steps: list[dict[str, Any]], iterations: Iterations) -> list[dict[str, Any]]:
    """The steps, of which those in the loop may run often. The end of the loop leads to the step after it."""
    first, last = iterations.before[-1]["step"], iterations.after[-1]
    names = [step["step"] for step in steps]
    following = steps[names.index(last["step"]) + 1]
    last["next"] = [*last["next"], {"to": following["step"]}]
    # An edge leads to it, so it does not follow the step before it by the order of the steps.
    iterations.before[-1]["needs"] = [names[names.index(first) - 1]]
    within = range(names.index(first), names.index(last["step"]) + 1)
    return [{**step, "max_visits": VISITS_MAX} if index in within else step for index, step in enumerate(steps)]
