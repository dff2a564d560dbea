"""The definitions that programs need: the workflow of a program, and the steps that it calls.

The definition of a called step is that of a workflow with this one step, checked by the reader of files. Its
expressions read the arguments of the call as `inputs`. The language is imported when the first one is made.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from mulligan.core.model.actions import APPROVE, CARRIED, CHILD_RUN, EVENT, PYTHON, WAIT
from mulligan.core.model.workflow import Action, Expression, Step, Template, encode
from mulligan.flows.context import RECORDER, Site, refuse, running_program
from mulligan.flows.functions import definition_site
from mulligan.flows.parameters import Parameters
from mulligan.flows.recording import RESULT, Record, Recorder
from mulligan.flows.source import action_for, script_text
from mulligan.flows.step_keys import ENVIRONMENT
from mulligan.flows.steps import Step as StepFunction
from mulligan.programs.messages import StepDefinition, digest_of

# The keys of `@program` that are of its step; all others are those of the top level of a file.
STEP_KEYS = frozenset({"timeout", "deadline", "retry", "triage", "on_failure", "resources", "env", "cwd", "logs"})
# Those that are read here.
_OWN_KEYS = frozenset({"inputs", "calls"})
# Those of a file that the function itself says.
_SAID_BY_FUNCTION = frozenset({"steps", "outputs", "order"})
# The sections of a workflow that the keys of a step may refer to.
_SECTIONS = ("secrets", "breakers", "retry_policies", "handlers", "files", "defaults")
# What says which function a step calls; anything else is read by the language.
_PLAIN_ACTION = frozenset({"call", "import_from", "source", "file"})
# Keys of a step that belong to the graph of a flow, and what a program does instead.
_OF_GRAPHS = {
    "after": "call it after the other steps",
    "when": "write 'if' in the program",
    **dict.fromkeys(("next", "take", "no_match"), "call what follows in the program"),
    **dict.fromkeys(("join", "start", "max_visits", "at_max_visits"), "write a loop in the program"),
}
_ARGUMENTS = Template((Expression("inputs", ("inputs",)),))

# The modules whose source is pinned with the run of this process: `source` and `file` by name.
_pinned: dict[str, dict[str, str]] = {}
# The definitions that were made, by the identity of what is called, with that itself: so it stays alive.
_made: dict[int, tuple[Any, StepDefinition]] = {}
# The programs whose calls are being checked, by their identity: they may call one another.
_being_checked: set[int] = set()


def pin(module: str, source: str, file: str) -> None:
    """Let steps of this module run from the text that is pinned with the program."""
    _pinned[module] = {"source": source, "file": file}


def _definition(step: Step) -> StepDefinition:
    data = msgspec.json.encode(step, order="sorted")
    return StepDefinition(digest_of(data), data)


# -- the steps that a program calls ------------------------------------------------------------------------------------


def definition_of(called: Any, keys: Mapping[str, Any] | None = None) -> StepDefinition:
    """The definition of a step that a program calls. `keys`: those of the program, to which the step may refer."""
    known = _made.get(id(called))
    if known is None:
        known = _made[id(called)] = called, _definition(_checked(called, keys or {}))
    return known[1]


def _checked(called: Any, keys: Mapping[str, Any]) -> Step:
    if hasattr(called, "__mulligan_workflow__"):
        return _child_run(called)
    _refuse_graph(called)
    recorder = Recorder("program")
    record = _recorded(called, recorder)
    has_keys = bool(record.keys or recorder.sections or not _PLAIN_ACTION.issuperset(record.action["python"]))
    if not has_keys and not any(name in keys for name in _SECTIONS):
        return plain_step(record)
    return _read(recorder, record, keys)


def _child_run(called: Any) -> Step:
    """The step of a call of another program, which is a child run with the workflow that the call carries."""
    text = encode(called.__mulligan_workflow__().check()).decode()
    params = {"file": called.name, CARRIED: text, "inputs": {"${}": "args"}}
    return Step(name=called.name, action=Action(CHILD_RUN, params, {"args": _ARGUMENTS}))


def plain_step(record: Record) -> Step:
    """The definition of a step without keys, as the language would read it: importing that costs more than a start."""
    params = {**record.action["python"], **_pinned_source(record.action["python"])}
    bindings = {}
    if record.action.get("args"):
        params["args"], bindings = {"${}": "args"}, {"args": _ARGUMENTS}
    return Step(name=record.name, action=Action(PYTHON, params, bindings))


def _refuse_graph(called: StepFunction[..., Any]) -> None:
    """Refuse what says where a step stands in a graph: a program would ignore it."""
    for key, hint in _OF_GRAPHS.items():
        if key in called.keys:
            message = f"step '{called.__name__}' has '{key}', which belongs to flows, and a program calls it"
            refuse("program", message, hint=hint, word=key, site=called.keys[key][1])
    if called.routes:
        message = f"step '{called.__name__}' leads to another step, and a program has no edges"
        refuse("program", message, hint="write 'except StepFailed' in the program", site=called.site)


def _pinned_source(params: Mapping[str, Any]) -> dict[str, str]:
    return _pinned.get(str(params.get("call", "")).partition(":")[0], {})


def _recorded(called: StepFunction[..., Any], recorder: Recorder) -> Record:
    """Let the step say what a file would say of it."""
    from mulligan.flows.references import Reference

    before = RECORDER.set(recorder)
    try:
        parameters = Parameters(called.fn, f"step '{called.__name__}'")
        values = {name: recorder.value(Reference(f"inputs.{name}", {}), {}) for name in parameters.names}
        record = called._add(recorder, called.site)
        record.action = called._python(values)
        called._finish(recorder, record)
        return record
    finally:
        RECORDER.reset(before)


def _read(recorder: Recorder, record: Record, keys: Mapping[str, Any]) -> Step:
    from mulligan.language.python.builder import CallSite, Located, Workflow

    def at(site: Site) -> CallSite:
        return CallSite(site.file, site.line)

    sections = {name: dict(keys[name]) for name in _SECTIONS if name in keys}
    for name, values in recorder.sections.items():
        sections[name] = {**sections.get(name, {}), **values}
    given = dict(record.action.get("args", {}))
    workflow = Workflow.at(at(record.site), {"name": "program", "inputs": dict.fromkeys(given, _ANY), **sections})
    made: dict[str, Any] = dict(record.action)
    made["python"] = Located(made["python"], at(record.keys_site))
    for key, (value, site) in record.keys.items():
        if key != "step":
            made[key] = Located(value, at(site))
    workflow.step_at(at(record.site), record.name, made)
    step = workflow.check().steps[0]
    assert step.action is not None
    params = {**step.action.params, **_pinned_source(step.action.params)}
    bindings = {name: one for name, one in step.action.bindings.items() if name not in _holes_of(params.get("args"))}
    if given:
        # All arguments at once: one expression instead of one for each.
        params["args"], bindings = {"${}": "args"}, {**bindings, "args": _ARGUMENTS}
    return msgspec.structs.replace(step, action=Action(step.action.kind, params, bindings, step.action.paths))


_ANY = {"type": "any", "default": None}


def _holes_of(args: Any) -> frozenset[str]:
    from mulligan.core.state.scope import holes

    return holes(args)


def sleep_definition() -> StepDefinition:
    """The step of `sleep`: its argument is `seconds`."""
    seconds = Template((Expression("inputs.seconds", ("inputs.seconds",)),))
    return _definition(Step(name="sleep", action=Action(WAIT, {"seconds": {"${}": "seconds"}}, {"seconds": seconds})))


def approve_definition(given: Collection[str]) -> StepDefinition:
    """The step of `approve`: its arguments are `prompt` and, if it has them, `timeout` in seconds and `evidence`."""
    params: dict[str, Any] = {"message" if name == "prompt" else name: {"${}": name} for name in given}
    bindings = {name: Template((Expression(f"inputs.{name}", (f"inputs.{name}",)),)) for name in given}
    return _definition(Step(name="approve", action=Action(APPROVE, params, bindings)))


def event_wait_definition(given: Collection[str], schema: Mapping[str, Any] | None) -> StepDefinition:
    """The step of `wait_event`: its arguments are `event` and, if it has them, `timeout` in seconds and `default`."""
    params: dict[str, Any] = {name: {"${}": name} for name in given}
    bindings = {name: Template((Expression(f"inputs.{name}", (f"inputs.{name}",)),)) for name in given}
    if schema is not None:
        params["schema"] = schema
    return _definition(Step(name="wait_event", action=Action(EVENT, params, bindings)))


# -- the program itself ------------------------------------------------------------------------------------------------


def workflow_of(program: Any) -> Any:
    """The workflow of a program, which is its only step: a `language.python.builder.Workflow`."""
    from mulligan.flows.input_types import inputs_of
    from mulligan.language.python.builder import CallSite, Located, Workflow

    parameters = Parameters(program.fn, f"program '{program.name}'")
    declared = inputs_of(program.fn, parameters, dict(program.keys.get("inputs", {})))
    _refuse_keys(program)
    site = definition_site(program.fn) or program.site
    at = CallSite(site.file, site.line)
    recorder = Recorder(program.name)
    for step in _steps_named(program.fn):
        _refuse_graph(step)
        if step.keys and running_program() is None:
            # Now, and not when it is called at night. A program that calls this one checks what it calls by itself.
            _checked(step, program.keys)
    if running_program() is None:
        _check_called(program)
    top = {key: one for key, one in program.keys.items() if key not in STEP_KEYS and key not in _OWN_KEYS}
    for step in steps_in_reach(program.fn):
        found = Recorder(program.name)
        _recorded(step, found)
        for section, values in found.sections.items():
            recorder.sections.setdefault(section, {}).update(values)
    top = recorder.value(top, {})
    for section, values in recorder.sections.items():
        top[section] = {**values, **top.get(section, {})}
    keys: dict[str, Any] = {"name": program.name}
    if description := " ".join((program.__doc__ or "").split("\n\n")[0].split()):
        keys["description"] = description
    keys.update(top)
    if declared:
        keys["inputs"] = Located(declared, at)
    keys["outputs"] = {RESULT: f"${{steps[{program.__name__!r}].output}}".replace("'", '"')}
    workflow = Workflow.at(at, keys)
    step_keys = {key: recorder.value(program.keys[key], {}) for key in STEP_KEYS if key in program.keys}
    action: dict[str, Any] = {**_pinned_action(program.fn), "program": True}
    if "calls" in program.keys:
        action["calls"] = program.keys["calls"]
    args = {name: f"${{inputs.{name}}}" for name in parameters.names}
    workflow.step_at(at, program.__name__, {"python": action, **({"args": args} if args else {}), **step_keys})
    return workflow


def _steps_named(function: Any) -> Iterator[StepFunction[..., Any]]:
    """The steps that the text of a program names: at the top of its module."""
    for name in dict.fromkeys(_names_used(function.__code__)):
        if isinstance(step := function.__globals__.get(name), StepFunction):
            yield step


def _check_called(program: Any) -> None:
    """Refuse what is wrong in the programs and flows that the text of a program names, as in its steps."""
    if id(program) in _being_checked:
        return
    _being_checked.add(id(program))
    try:
        for name in dict.fromkeys(_names_used(program.fn.__code__)):
            called = program.fn.__globals__.get(name)
            if hasattr(type(called), "__mulligan_workflow__") and id(called) not in _being_checked:
                called.__mulligan_workflow__().check()
    finally:
        _being_checked.discard(id(program))


def _names_used(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _names_used(one)


def _refuse_keys(program: Any) -> None:
    """Refuse keys that a program does not have."""
    from mulligan.language.keys.workflow_keys import STEP, WORKFLOW

    own = (STEP_KEYS | _OWN_KEYS | WORKFLOW.keys.keys()) - _SAID_BY_FUNCTION
    for key in program.keys:
        if key not in own and (key in STEP.keys or key in ENVIRONMENT or key in _SAID_BY_FUNCTION):
            message = f"'{key}' is not a key of a program"
            hint = "the function says it" if key in _SAID_BY_FUNCTION else "set it on the steps that it calls"
            refuse("unknown_key", message, hint=hint, word=key, site=program.site)


def _pinned_action(function: Any) -> dict[str, str]:
    """How workers find the program: always with the source of its module, which is pinned with the run."""
    action = dict(action_for(function))
    pinned = _pinned.get(action["call"].partition(":")[0])
    if pinned is not None:
        # As this process has it: the file may have changed since.
        return {**action, **pinned}
    if "source" not in action and (found := script_text(function)) is not None:
        action["source"], action["file"] = found
    return action


def steps_in_reach(function: Any) -> Iterator[StepFunction[..., Any]]:
    """The steps that a program can name: at the top of its module. What else it calls is known when it runs."""
    seen: set[int] = set()
    for value in list(getattr(function, "__globals__", {}).values()):
        if isinstance(value, StepFunction) and id(value.recovery) not in seen:
            seen.add(id(value.recovery))
            yield value
