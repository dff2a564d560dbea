"""NoETL's playbooks into workflows of ours: the dialect with `case`, the one with arcs, and what is easy of the oldest.

A step becomes one of ours with the action `noetl`, which knows NoETL's templates and tools; arcs become edges, loops
maps, called playbooks child runs. What a failure leads to is an edge: a failure can be handled here.
"""

from __future__ import annotations

from typing import Any

from mulligan.core.model.workflow import END
from mulligan.formats.expressions import output_of
from mulligan.formats.noetl.keys import RECORDS
from mulligan.formats.noetl.plan import Plan
from mulligan.formats.noetl.playbook import Playbook, read_playbook
from mulligan.formats.noetl.programs import refuse_given_programs
from mulligan.formats.noetl.unreadable import refuse_unreadable
from mulligan.formats.noetl.workload import derived, inputs, workload_of
from mulligan.formats.translation import Translation, mapping
from mulligan.language.nodes import Mapping, Node, Scalar, TooManyProblems

__all__ = ["RECORDS", "translate"]

_LAST_CHARS_MAX = 4000


def translate(root: Node, translation: Translation) -> Mapping:
    """The tree of a playbook as the tree of a workflow of ours."""
    playbook = read_playbook(root, translation)
    if playbook is not None:
        for key in ("workflow", "workbook"):
            refuse_unreadable(playbook.fields.get(key, ()), translation.source)
        if not translation.trusts_templates:
            final = () if playbook.final is None else (playbook.final,)
            refuse_given_programs((*playbook.steps, *final), translation.source)
    if playbook is None or translation.source.problems:
        raise TooManyProblems
    plan = Plan(playbook.steps, playbook.final, workload_of(playbook.workload), playbook.credentials, translation)
    plan.derived = derived(playbook.fields)
    plan.defaults = playbook.fields.get("workload") or {}
    plan.must_match = bool(playbook.spec.get("no_next_is_error"))
    steps = plan.steps(playbook.entry)
    end = plan.end(playbook.final) if playbook.final is not None else None
    if translation.source.problems:
        raise TooManyProblems
    outputs = _outputs(plan, playbook, translation)
    return mapping(
        {**_about(playbook), **_named_things(playbook), "steps": steps, "end": end, "outputs": outputs}, root
    )


def _about(playbook: Playbook) -> dict[str, Any]:
    metadata = playbook.fields.get("metadata")
    said = {**playbook.fields.values, **(metadata.values if metadata is not None else {})}
    description = metadata.node.get("description") if metadata is not None else playbook.fields.node.get("description")
    return {"name": _text(said.get("name") or said.get("path")), "description": description}


def _text(value: Any) -> str | None:
    if isinstance(value, Scalar):
        return value.text or None
    return None if value is None else str(value)


def _named_things(playbook: Playbook) -> dict[str, Any]:
    secrets = {name: {"env": named} for name, named in playbook.credentials.secrets.items()}
    return {"inputs": inputs(playbook.fields) or None, "secrets": secrets or None}


def _outputs(plan: Plan, playbook: Playbook, translation: Translation) -> dict[str, Any]:
    """The result; and what a playbook that calls this one may take in its place, where one does."""
    routes = {name: output_of(names.route) for name, names in plan.names.items()}
    result = _last(plan, list(routes.values()))
    end = output_of(END)
    if playbook.aggregates:
        result = f"{end} != null && {end}.result != null ? {end}.result : {result}"
    if not translation.is_included:
        return {"result": f"${{{result}}}"}
    steps = {name: f"${{{output} == null ? null : {output}.result}}" for name, output in routes.items()}
    last = dict.fromkeys((END, playbook.final.name if playbook.final is not None else END), f"${{{result}}}")
    return {"result": f"${{{result}}}", "steps": {**last, **steps}}


def _last(plan: Plan, outputs: list[str]) -> str:
    """What the last step gave: of those from which no way leads on the one that ran, else one before them."""
    leaves = {output_of(place.name) for place in plan.places if not place.links}
    backwards = outputs[::-1]
    ordered = [*filter(leaves.__contains__, backwards), *(output for output in backwards if output not in leaves)]
    candidates = ordered[:1]
    for output in ordered[1:]:
        # An expression has a length that is bounded. Nobody calls a playbook of hundreds of steps for its last one.
        if sum(map(len, candidates)) + len(output) < _LAST_CHARS_MAX:
            candidates.append(output)
    return f'[{", ".join(candidates)}, {{"result": null}}].filter(o, o != null)[0].result'
