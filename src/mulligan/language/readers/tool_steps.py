"""Reads steps that agents call: steps with `tool`. They are not part of the graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mulligan.core.model.workflow import END, Command, Input, StepTool
from mulligan.language.keys.value_schemas import NAME, Fields
from mulligan.language.keys.workflow_keys import COMMAND_KEYS, STEP, STEP_KEYS
from mulligan.language.readers.commands import action_field, command_fields
from mulligan.language.readers.inputs import read_input
from mulligan.language.readers.settings import Settings
from mulligan.language.scope import NO_STEPS, Draft, Scope
from mulligan.language.text.nodes import Mapping, Node, Scalar, shorten

# The keys that a tool has of a step; the others are about the graph.
_KEYS = frozenset({"step", "description", "tool", *COMMAND_KEYS})


def is_tool(node: Node) -> bool:
    """Whether a step of the list is called by agents."""
    if not isinstance(node, Mapping) or "tool" not in node.entries:
        return False
    tool = node.get("tool")
    return not (isinstance(tool, Scalar) and tool.value is False)


def read_tools(nodes: Iterable[Node], draft: Draft, settings: Settings) -> None:
    """Read the steps with `tool` into the draft, before the agents that name them. Problems are noted."""
    for node in nodes:
        with draft.source.noting:
            assert isinstance(node, Mapping)
            _read_tool(node, draft, settings)


def _read_tool(node: Mapping, draft: Draft, settings: Settings) -> None:
    source = draft.source
    name_node = node.get("step")
    if not isinstance(name_node, Scalar) or not NAME.fullmatch(name_node.text) or name_node.text == END:
        message = "a tool has a name of letters, digits, '_' and '-'"
        raise source.refuse("name", message, name_node or node, hint="add 'step: NAME'")
    name = name_node.text
    if name in draft.tools or name in draft.step_names:
        raise source.refuse("duplicate_step", f"there are two steps '{name}'", name_node)
    label = f"step '{shorten(name)}'"
    for word, (key, _) in node.entries.items():
        if word in STEP_KEYS and word not in _KEYS:
            message = f"{label} is called by agents and has no place in the graph, so it has no '{word}'"
            source.note(source.refuse("stray_key", message, key, hint="remove it, or remove 'tool'"))
    form = STEP_KEYS["tool"].schema.read(node.entries["tool"][1], "'tool'", source)
    inputs = _inputs(form, draft) if isinstance(form, Fields) else {}
    own = _with_arguments(node, inputs)
    fields: Fields = STEP.read(own, label, source)
    scope = Scope(draft, label, reader=NO_STEPS, tool_inputs=frozenset(inputs)).for_fields(fields)
    command = Command(**{**action_field(fields, label, scope), **command_fields(fields, scope, settings)})
    if "description" not in fields:
        message = f"{label} has no description: the agent knows it by its name alone"
        source.warn("no_description", message, name_node, hint="add 'description: …'")
    draft.tools[name] = StepTool(name, command, fields.get("description", ""), inputs)


def _inputs(form: Fields, draft: Draft) -> dict[str, Input]:
    """The arguments of a tool. They have other names than the inputs of the file, which it reads too."""
    found: dict[str, Input] = {}
    for name, one in form.get("inputs", {}).items():
        inputs = form.at("inputs")
        assert isinstance(inputs, Mapping)
        if name in draft.inputs:
            message = f"'{name}' is already an input of the file, and the tool can read it"
            raise draft.source.refuse("duplicate_input", message, inputs.key(name), hint="give it another name")
        found[name] = read_input(name, one, draft.source)
    return found


def _with_arguments(node: Mapping, inputs: dict[str, Any]) -> Mapping:
    """The step without keys of the graph; a python action gets the arguments by name unless it has `args`."""
    own = Mapping(node.line, node.column)
    own.entries = {word: one for word, one in node.entries.items() if word in _KEYS or word not in STEP_KEYS}
    if "python" in own.entries and "args" not in own.entries and inputs:
        at = own.key("python")
        args = Mapping(at.line, at.column)
        for name in inputs:
            text = f"${{inputs.{name}}}"
            args.entries[name] = (at, Scalar(text, text, '"', at.line, at.column, at.column))
        own.entries["args"] = (at, args)
    return own


def warn_unused_tools(draft: Draft, nodes: Iterable[Node]) -> None:
    """Warn about tools that no agent names: nothing starts them."""
    for node in nodes:
        name = node.get("step") if isinstance(node, Mapping) and is_tool(node) else None
        if isinstance(name, Scalar) and name.text in draft.tools and ("tools", name.text) not in draft.used:
            message = f"no agent has the tool '{name.text}', so nothing starts this step"
            draft.source.warn("unused_tool", message, name, hint="name it in 'tools' of an agent")
