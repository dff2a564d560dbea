"""The action `noetl`, which carries out one step of a playbook. `mulligan.plugins` finds it as it finds any plugin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mulligan.plugins import CODE_FREE_CALLS, ActionPlugin

# The keys that may name tools.
_WITH_TOOLS = ("tool", "cases", "next")
# Tools that run code of the playbook; that work here; that wait for another machine.
_CODE, _LOCAL, _REMOTE = frozenset({"python", "shell"}), frozenset({"duckdb"}), frozenset({"http", "postgres"})


class NoetlAction(ActionPlugin):
    """The action, which runs a step in another process if the step has no code."""

    def call_for(self, args: Mapping[str, Any]) -> str:
        return self.call if _CODE & _words(args) else CODE_FREE_CALLS["noetl"]

    def waits_with(self, args: Mapping[str, Any]) -> bool:
        words = _words(args)
        return bool(_REMOTE & words) and not (_CODE | _LOCAL) & words


def _words(args: Mapping[str, Any]) -> set[str]:
    """All texts under the keys that may name tools: also some that name none, which costs a little time at most."""
    return {text.strip().lower() for key in _WITH_TOOLS for text in _texts(args.get(key))}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(inner)


# One action runs a whole NoETL step: its templates are Jinja2 over a context that steps change, which our expressions
# cannot express. Its output is the envelope {result, ctx, next, status}.
NOETL = NoetlAction(
    "mulligan.formats.noetl.runtime:run",
    about="one step of a NoETL playbook",
    keys={
        "name": "the name of the step in the playbook, if it differs from ours",
        "tool": "what it runs: {kind: …}, or a pipeline, a list of {name, kind, …}; nothing without it",
        "render": "instead of a tool: a value; with its templates rendered it is the result",
        "pinned": "with 'render': {path, is}; the path of the playbook to call, and what it was when the run started",
        "result": "instead of a tool: the result as it is, for a step that follows a child run",
        "input": "the input of the tool, by name; templates",
        "workload": "the playbook's workload: ${inputs}",
        "derived": "the defaults of the workload that are templates",
        "seen": "the outputs of earlier steps, by name: {a: ${steps.a.output}}",
        "item": "in a loop: {name, value, index, length}; is_written, or of (a key of 'defaults'): it is from the file",
        "previous": "in a sequential loop: ${previous}; the item reads what the items before it have set",
        "before": "in a list of tools that a called playbook divides: the results so far, [{result}, {name, result}]",
        "loop": "for a step that follows a loop: the output of the map",
        "each": "with 'loop': {name, values, set}; what to set for each item in turn, with its result as the outcome",
        "set": "the values to set after a success: {ctx.x: …, vars.y: …}; templates",
        "cases": "what to do after which event: [{when, then}]",
        "next": "the next steps: {mode: exclusive | inclusive, arcs: [{step, when, set, args}]}",
        "auth": "credentials by name: {pg: ${secrets.pg}}",
        "defaults": "the defaults of the workload: such a value may be part of a command or a query",
        "trust_templates": "true: any value may be part of a command or a query, as in NoETL",
        "failure": "for a step that a failure led to: ${failure}. It fails as well if no arc takes the failure up",
    },
    program_keys=("tool", "render", "pinned", "input", "set", "cases", "next", "derived", "defaults"),
)
