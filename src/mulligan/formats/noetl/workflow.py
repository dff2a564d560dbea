"""Translate NoETL playbooks: the dialect with `case`, the one with arcs, and most of the oldest one.

A step becomes one of ours with the action `noetl`, which knows NoETL's templates and tools. Arcs become edges, loops
become maps, called playbooks become child runs. Unlike in NoETL, a failure that an arc takes up is handled.
"""

from __future__ import annotations

from typing import Any

from mulligan.core.model.workflow import END
from mulligan.formats.expressions import output_of
from mulligan.formats.noetl.checks import refuse_programs_from_steps, refuse_unreadable, warn_of_unknown_names
from mulligan.formats.noetl.credentials import secret_commands
from mulligan.formats.noetl.plan import Plan
from mulligan.formats.noetl.playbook import Playbook, read_playbook
from mulligan.formats.noetl.texts import foreign, has_templates, input_name
from mulligan.formats.translation import Translation, mapping
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Mapping, Node, Scalar, TooManyProblems, plain

_LAST_CHARS_MAX = 4000


def translate(root: Node, translation: Translation) -> Mapping:
    """Make the tree of a workflow out of the tree of a playbook."""
    playbook = read_playbook(root, translation)
    if playbook is not None:
        for key in ("workflow", "workbook"):
            refuse_unreadable(playbook.fields.get(key, ()), translation.source)
        if not translation.trusts_templates:
            final = () if playbook.final is None else (playbook.final,)
            refuse_programs_from_steps((*playbook.steps, *final), translation.source)
    if playbook is None or translation.source.problems:
        raise TooManyProblems
    assert isinstance(root, Mapping)
    warn_of_unknown_names(root, {*playbook.workload}, {step.name for step in playbook.steps}, translation.source)
    plan = Plan(playbook.steps, playbook.final, _workload_value(playbook.workload), playbook.credentials, translation)
    workload = playbook.fields.get("workload") or {}
    # Defaults that are templates: the action renders those that the run does not override.
    plan.derived = {key: foreign(node) for key, node in workload.items() if has_templates(node)} or None
    plan.defaults = workload
    plan.must_match = bool(playbook.spec.get("no_next_is_error"))
    steps = plan.steps(playbook.entry)
    end = plan.end(playbook.final) if playbook.final is not None else None
    if translation.source.problems:
        raise TooManyProblems
    outputs = _outputs(plan, playbook, translation)
    commands = secret_commands(playbook.fields.get("keychain", ()))
    secrets = {
        name: {"command": commands[name]} if name in commands else {"env": variable}
        for name, variable in playbook.credentials.secrets.items()
    }
    return mapping(
        {
            **_name_and_description(playbook.fields),
            "inputs": {input_name(key): _input(node) for key, node in workload.items()} or None,
            "secrets": secrets or None,
            "steps": steps,
            "end": end,
            "outputs": outputs,
        },
        root,
    )


def _name_and_description(fields: Fields) -> dict[str, Any]:
    metadata = fields.get("metadata")
    values = {**fields.values, **(metadata.values if metadata is not None else {})}
    name = values.get("name") or values.get("path")
    if isinstance(name, Scalar):
        name = name.text or None
    description = (metadata if metadata is not None else fields).node.get("description")
    return {"name": None if name is None else str(name), "description": description}


def _outputs(plan: Plan, playbook: Playbook, translation: Translation) -> dict[str, Any]:
    """The result; and, where another playbook calls this one, the results of the steps, which it may ask for."""
    parts = {part.name for step in playbook.steps for part in step.before}
    routes = {name: output_of(names.route) for name, names in plan.names.items() if name not in parts}
    result = _last_result(plan, list(routes.values()))
    end = output_of(END)
    if playbook.aggregates:
        result = f"{end} != null && {end}.result != null ? {end}.result : {result}"
    if not translation.is_included:
        return {"result": f"${{{result}}}"}
    steps = {name: f"${{{output} == null ? null : {output}.result}}" for name, output in routes.items()}
    last = dict.fromkeys((END, playbook.final.name if playbook.final is not None else END), f"${{{result}}}")
    return {"result": f"${{{result}}}", "steps": {**last, **steps}}


def _last_result(plan: Plan, outputs: list[str]) -> str:
    """The result of the last step: of a step without successors that ran, otherwise of one before it."""
    leaves = {output_of(place.name) for place in plan.planned if not place.links}
    backwards = outputs[::-1]
    ordered = [*filter(leaves.__contains__, backwards), *(output for output in backwards if output not in leaves)]
    candidates = ordered[:1]
    for output in ordered[1:]:
        # The length of an expression is limited. A playbook of hundreds of steps is not called for the last of them.
        if sum(map(len, candidates)) + len(output) < _LAST_CHARS_MAX:
            candidates.append(output)
    return f'[{", ".join(candidates)}, {{"result": null}}].filter(o, o != null)[0].result'


_TYPES = ((bool, "boolean"), (int, "number"), (float, "number"), (str, "string"), (list, "array"), (dict, "object"))


def _input(node: Node) -> Mapping:
    """A key of the workload as an input with the type of its default. A null or a template may be of any type."""
    value = plain(node)
    of_template = isinstance(value, str) and has_templates(node)
    kind = "any" if of_template else next((name for of, name in _TYPES if isinstance(value, of)), "any")
    return mapping({"type": kind, "default": node}, node)


def _workload_value(workload: dict[str, Any]) -> Any:
    """The value of `workload` for actions: the inputs by their names in the playbook. None where there are none."""
    if not workload:
        return None
    if all(input_name(key) == key for key in workload):
        return "${inputs}"
    return {key: f"${{inputs.{input_name(key)}}}" for key in workload}
