"""The workload: inputs with defaults, which a run or a calling playbook overrides key by key."""

from __future__ import annotations

from typing import Any

from mulligan.formats.noetl.texts import foreign, has_templates, input_name
from mulligan.formats.translation import mapping
from mulligan.language.nodes import Mapping, Node, plain
from mulligan.language.shapes import Fields

_TYPES = ((bool, "boolean"), (int, "number"), (float, "number"), (str, "string"), (list, "array"), (dict, "object"))


def inputs(fields: Fields) -> dict[str, Mapping]:
    """The inputs of ours: each of the type that its default has. What is null may be anything."""
    return {input_name(key): _input(node) for key, node in (fields.get("workload") or {}).items()}


def _input(node: Node) -> Mapping:
    value = plain(node)
    kind = next((name for of, name in _TYPES if isinstance(value, of)), "any")
    return mapping({"type": kind, "default": node}, node)


def workload_of(workload: dict[str, Any]) -> Any:
    """What actions are told: the inputs under the names that the playbook has for them. None where there are none."""
    if not workload:
        return None
    if all(input_name(key) == key for key in workload):
        return "${inputs}"
    return {key: f"${{inputs.{input_name(key)}}}" for key in workload}


def derived(fields: Fields) -> dict[str, Node] | None:
    """The defaults that are templates: the action fills them in, where a run does not say otherwise."""
    found = {key: node for key, node in (fields.get("workload") or {}).items() if has_templates(node)}
    return {key: foreign(node) for key, node in found.items()} or None
