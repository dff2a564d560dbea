"""Values that nobody knows before a run: inputs without a default, outputs of steps, and what expressions make of them.

A condition that reads such a value is not evaluated. It is assumed to hold, except that of a loop, which would repeat
until its budget is spent; `choices` says otherwise for single conditions. What was assumed is kept in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mulligan.core.model.actions import traits_of
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Command, Expression, Input, Step, Template, Workflow, all_commands
from mulligan.core.state.scope import Evaluator
from mulligan.errors import ExpressionFailed

# How many items a map is assumed to have if its list is not known.
ITEMS = ("item 1", "item 2")
TEXT = "assumed"
_BY_TYPE: dict[str, Any] = {
    "string": TEXT,
    "integer": 1,
    "number": 1,
    "boolean": True,
    "array": list(ITEMS),
    "object": {},
    "any": TEXT,
}


def assumed_input(declared: Input) -> Any:
    """A value for an input that nobody gave: its default, else the first that is allowed, else one of its type."""
    if declared.has_default:
        return declared.default
    return declared.enum[0] if declared.enum else _BY_TYPE[declared.type]


def assumed_inputs(workflow: Workflow, given: Mapping[str, Any]) -> dict[str, Any]:
    """All inputs of a run: those that were given, and assumed ones."""
    found = {name: assumed_input(declared) for name, declared in workflow.inputs.items()}
    return {**found, **given}


class AssumingEvaluator:
    """Evaluates what can be evaluated, and assumes the rest. Its answers depend on its arguments alone."""

    def __init__(
        self, evaluator: Evaluator, workflow: Workflow, choices: Mapping[Expression, bool] | None = None
    ) -> None:
        self._evaluator = evaluator
        self._choices = dict(choices or {})
        self._values: dict[Expression, Any] = {}
        self._repeats: set[Expression] = set()
        for one in (workflow, *children_of(workflow)):
            self._read(one)
        # The sources of the conditions and values that were assumed, each with what was assumed.
        self.assumed: dict[str, Any] = {}

    def _read(self, workflow: Workflow) -> None:
        """Note which expressions need a certain kind of value, and which are conditions of loops."""
        nodes = Graph(workflow).nodes.values()
        self._repeats.update(arc.edge.when for node in nodes for arc in node.arcs if arc.is_loop and arc.edge.when)
        for command in all_commands((*workflow.steps, workflow.end)):
            self._values.update(_typed_values(command))

    def condition(self, expression: Expression, names: Mapping[str, Any]) -> bool:
        chosen = self._choices.get(expression)
        if chosen is not None:
            return chosen
        try:
            return self._evaluator.condition(expression, _without_unknown(names))
        except ExpressionFailed:
            answer = expression not in self._repeats
            self.assumed[expression.source] = answer
            return answer

    def evaluate(self, expression: Expression, names: Mapping[str, Any]) -> Any:
        try:
            found = self._evaluator.evaluate(expression, _without_unknown(names))
        except ExpressionFailed:
            found = None
        if found is None or (self._values.get(expression) == list(ITEMS) and not isinstance(found, list)):
            found = self._values.get(expression, TEXT)
            self.assumed[expression.source] = found
        return found

    def render(self, template: Template, names: Mapping[str, Any]) -> Any:
        try:
            return self._evaluator.render(template, _without_unknown(names))
        except ExpressionFailed:
            parts = template.parts
            if len(parts) == 1 and isinstance(parts[0], Expression):
                return self.evaluate(parts[0], names)
            return "".join(part if isinstance(part, str) else str(self.evaluate(part, names)) for part in parts)

    def keep(self, name: str, value: Any) -> Any:
        return value


def children_of(workflow: Workflow) -> Iterator[Workflow]:
    """All workflows that it calls, at any depth."""
    for child in workflow.children.values():
        yield child
        yield from children_of(child)


def _without_unknown(names: Mapping[str, Any]) -> dict[str, Any]:
    """The names without the outputs that are not known, so that an expression that reads one cannot be evaluated."""
    found = dict(names)
    if "output" in found and found["output"] is None:
        del found["output"]
    if "outputs" in found and None in found["outputs"]:
        del found["outputs"]
    if "steps" in found:
        found["steps"] = {name: _known_view(view) for name, view in found["steps"].items()}
    return found


def _known_view(view: dict[str, Any]) -> dict[str, Any]:
    """A step without its output if it completed and nobody knows with what; a matrix without outputs likewise."""
    output, status = view.get("output"), view.get("status")
    if status is None and isinstance(output, list):
        is_unknown = None in output
    else:
        is_unknown = output is None and status == "completed"
    return {key: value for key, value in view.items() if key != "output"} if is_unknown else view


def _typed_values(command: Command) -> Iterator[tuple[Expression, Any]]:
    """The expressions of a command that need a certain kind of value."""
    policy = command.map if isinstance(command, Step) else None
    if policy is not None:
        if policy.over is not None:
            yield policy.over, list(ITEMS)
        if policy.parallel is not None:
            yield policy.parallel, 1
    action = command.action
    found = traits_of(action)
    if action is not None and (found.is_timer or found.asks_person):
        for template in action.bindings.values():
            for part in template.parts:
                if isinstance(part, Expression):
                    yield part, _UNTIL if "until" in action.params else 0


# A time that has passed whenever a play starts.
_UNTIL = "2020-01-01T00:00:00Z"
