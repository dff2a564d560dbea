"""The action `noetl`, which carries out one step of a playbook. `mulligan.plugins` finds it as it finds any plugin."""

from __future__ import annotations

from mulligan.plugins import ActionPlugin

# A NoETL step in one action: its templates are Jinja2 over a context that steps change, and no expression of ours
# could say what they say. What it gives is the envelope {result, ctx, next, status}.
NOETL = ActionPlugin(
    "mulligan.formats.noetl.runtime:run",
    about="one step of a NoETL playbook",
    keys={
        "name": "the step's name in the playbook, where it is not ours",
        "tool": "what it does: {kind: …}, or a list of {name, kind, …}, which is a pipeline; without it, nothing",
        "render": "instead of a tool: the value whose templates are filled in is the result",
        "result": "instead of a tool: the result as it is, nothing filled in; of a step that follows a child run",
        "input": "values for the tool, by name; templates",
        "workload": "the playbook's workload: ${inputs}",
        "derived": "keys of the workload whose defaults are templates, as they are written",
        "seen": "what the steps before it gave, by their names: {a: ${steps.a.output}}",
        "item": "in a loop: {name, value, index, length}; is_written, or of (a key of 'defaults'): it is the file's",
        "loop": "of a step that follows a loop: the output of the map, whose results are its own",
        "set": "what is set when it has ended well: {ctx.x: …, vars.y: …}; templates",
        "cases": "what is done by what has happened: [{when, then}]",
        "next": "where it goes on: {mode: exclusive | inclusive, arcs: [{step, when, set, args}]}",
        "auth": "credentials by name: {pg: ${secrets.pg}}",
        "defaults": "keys of the workload as the file has them: such a value may be part of a command or a query",
        "trust_templates": "true: any value may be part of a command or a query, as in NoETL",
        "failure": "of a step that a failure led to: ${failure}. It fails in turn where no arc takes it up",
    },
    program_keys=("tool", "render", "input", "set", "cases", "next", "derived", "defaults"),
)
