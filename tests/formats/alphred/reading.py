"""How the tests of Alphred's files read: nodes and edges in, what our file says out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mulligan.errors import LanguageError
from mulligan.formats import examine
from mulligan.formats.alphred.workflow import translate
from mulligan.formats.translation import Translation
from mulligan.language.text.document import parse
from mulligan.language.text.nodes import Source, plain


def node(key: str, index: int | None = None, **fields: Any) -> dict[str, Any]:
    """An agent's node with the least that one has."""
    prompt = {"promptTemplate": {"content": fields.pop("prompt", f"do {key}")}}
    place = {} if index is None else {"sequenceIndex": index}
    return {"nodeKey": key, "provider": "claude", **place, **prompt, **fields}


def edge(source: str, target: str, guard: Any = None, **fields: Any) -> dict[str, Any]:
    said = {"auto": True} if guard is None else {"auto": False, "guardExpression": guard}
    return {"sourceNodeKey": source, "targetNodeKey": target, **said, **fields}


def failing(source: str, target: str, priority: int = 0) -> dict[str, Any]:
    return edge(source, target, routeOn="failure", priority=priority)


def decides(word: str, operator: str = "==") -> dict[str, Any]:
    return {"field": "decision", "operator": operator, "value": word}


def text(nodes: list[Any], edges: list[Any] | None = None, **fields: Any) -> str:
    """A file, one node or edge a line."""
    lists = {"nodes": nodes, "edges": edges or []}
    parts = [f'"{key}": {json.dumps(value)}' for key, value in {"treeKey": "w", **fields}.items()]
    parts += [f'"{key}": [\n' + ",\n".join(map(json.dumps, value)) + "\n]" for key, value in lists.items()]
    return "{" + ",\n".join(parts) + "}\n"


def ours(nodes: list[Any], edges: list[Any] | None = None, **fields: Any) -> dict[str, Any]:
    """The tree that a file becomes, once our language has taken it."""
    written = text(nodes, edges, **fields)
    examine(Path("w.json"), text=written)
    source = Source(written, "w.json")
    return plain(translate(parse(source), Translation(source)))  # type: ignore[no-any-return]


def steps(nodes: list[Any], edges: list[Any] | None = None, **fields: Any) -> dict[str, dict[str, Any]]:
    """The steps that a file becomes, by their names."""
    return {step.pop("step"): step for step in ours(nodes, edges, **fields)["steps"]}


def step(said: dict[str, Any]) -> dict[str, Any]:
    """The step that one node becomes."""
    return steps([said])[said["nodeKey"]]


def refusal(written: str) -> str:
    """The whole of what is said about a file that must be refused."""
    with pytest.raises(LanguageError) as refused:
        examine(Path("w.json"), text=written)
    return refused.value.render()


def warnings(nodes: list[Any], edges: list[Any] | None = None, **fields: Any) -> list[str]:
    """The sentences of the warnings about a file that is taken."""
    return [warning.message for warning in examine(Path("w.json"), text=text(nodes, edges, **fields)).warnings]
