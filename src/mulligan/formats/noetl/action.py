"""The action `noetl`, which carries out one step of a playbook. `mulligan.plugins` finds it as it finds any plugin."""

from __future__ import annotations

from mulligan.plugins import ActionPlugin

# One action runs a whole NoETL step: its templates are Jinja2 over a context that steps change, which our expressions
# cannot express. Its output is the envelope {result, ctx, next, status}.
NOETL = ActionPlugin(
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
        "loop": "for a step that follows a loop: the output of the map",
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
