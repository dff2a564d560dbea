"""A Torc file in KDL as the tree that its YAML would have: `job`, `file` and similar nodes become lists.

Torc ignores every node that it does not know, and so loses what its own examples say: `depends_on_job`, plural words,
the second regular expression of a line. Here each of them counts, and an unknown node is refused.
"""

from __future__ import annotations

from collections.abc import Mapping as Dict
from types import MappingProxyType
from typing import Any

import msgspec

from mulligan.errors import LanguageError
from mulligan.formats.kdl_text import KdlNode, read
from mulligan.formats.scanner import put
from mulligan.formats.torc import records
from mulligan.formats.translation import made, renewed, scalar, sequence
from mulligan.language.keys.value_schemas import Record
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, Source, TooManyProblems, shorten
from mulligan.language.text.suggestions import did_you_mean

_EMPTY: Dict[str, Any] = MappingProxyType({})


class _Block:
    """A kind of node with braces: its child nodes, in addition to the keys of its record with one value.

    `lists`: node name → key of the list that it adds to. `blocks`: node name → key of the list and kind of its entries.
    `maps`: nodes whose braces hold names and values. `json`: nodes whose text is JSON.
    """

    def __init__(
        self,
        record: Record,
        lists: Dict[str, str] = _EMPTY,
        *,
        blocks: Dict[str, tuple[str, _Block]] = _EMPTY,
        maps: tuple[str, ...] = (),
        json: tuple[str, ...] = (),
    ) -> None:
        self.lists = lists
        self.blocks = blocks
        self.maps = maps
        self.json = json
        self.has_name = "name" in record.keys
        hidden = {*lists.values(), *(key for key, _ in blocks.values())}
        others = [word for word in record.keys if word not in hidden]
        self.words = dict.fromkeys((*others, *lists, *blocks, *maps))


def _plural(*keys: str) -> dict[str, str]:
    """Each key, and its singular."""
    return {word: key for key in keys for word in (key, key.removesuffix("s"))}


def _plural_regexes(*keys: str) -> dict[str, str]:
    return {word: key for key in keys for word in (key, key.removesuffix("es"))}


_USE = {"use_parameters": "use_parameters", "use_parameter": "use_parameters"}
_JOB = _Block(
    records.JOB,
    {
        **dict.fromkeys(("depends_on", "depends_on_job", "depends_on_jobs"), "depends_on"),
        **_plural("input_files", "output_files"),
        **{word: word for word in ("input_user_data", "output_user_data")},
        **_plural_regexes("depends_on_regexes", "input_file_regexes", "output_file_regexes"),
        **_plural_regexes("input_user_data_regexes", "output_user_data_regexes"),
        **_USE,
    },
    maps=("parameters",),
)
_FILE = _Block(records.FILE, _USE, maps=("parameters",))
_RULE = _Block(records.RULE, _plural("exit_codes"))
_HANDLER = _Block(records.HANDLER, blocks={"rule": ("rules", _RULE)})
_ACTION = _Block(records.ACTION, {**_plural("jobs", "commands"), **_plural_regexes("job_name_regexes")})
_TOP = _Block(
    records.WORKFLOW,
    blocks={
        "job": ("jobs", _JOB),
        "file": ("files", _FILE),
        "user_data": ("user_data", _Block(records.USER_DATA, json=("data",))),
        "resource_requirements": ("resource_requirements", _Block(records.REQUIREMENTS)),
        "failure_handler": ("failure_handlers", _HANDLER),
        "slurm_scheduler": ("slurm_schedulers", _Block(records.SCHEDULER)),
        "action": ("actions", _ACTION),
    },
    maps=("parameters", "slurm_defaults", "resource_monitor"),
)


def parse(source: Source) -> Node:
    """The tree that the same workflow has in YAML. It always has `jobs`: only Torc has files in KDL."""
    nodes = read(source)
    if not nodes:
        raise source.refuse_at("empty", "the file is empty", 0, 0, hint="a Torc workflow has a 'name' and a 'job'")
    first = nodes[0].name
    root = renewed({}, first)
    try:
        _fill(root, nodes, _TOP, "the workflow", source)
    except TooManyProblems:
        pass  # enough problems were noted
    if source.problems:
        raise LanguageError(source.problems)
    if "jobs" not in root.entries:
        root.entries["jobs"] = (scalar("jobs", first), sequence((), first))
    return root


def _fill(mapping: Mapping, nodes: list[KdlNode], block: _Block, label: str, source: Source) -> None:
    for node in nodes:
        with source.noting:
            _add_node(mapping, node, block, label, source)


def _add_node(mapping: Mapping, node: KdlNode, block: _Block, label: str, source: Source) -> None:
    word = node.name.text
    if word in block.blocks:
        key, inner = block.blocks[word]
        _entries(mapping, key, node.name).append(_block(node, inner, source))
    elif word in block.lists:
        _entries(mapping, block.lists[word], node.name).extend(_all_values(node, source))
    elif word in block.maps:
        put(mapping, node.name, _map(node, source), source)
    elif word in block.words:
        put(mapping, node.name, _single_value(node, source, is_json=word in block.json), source)
    else:
        hint = did_you_mean(word, block.words)
        raise source.refuse("unknown_key", f"'{shorten(word)}' is not a node of {label}", node.name, hint=hint)


def _entries(mapping: Mapping, key: str, at: Scalar) -> list[Node]:
    if key not in mapping.entries:
        mapping.entries[key] = (scalar(key, at), sequence((), at))
    found = mapping.entries[key][1]
    return found.items if isinstance(found, Sequence) else []


def _block(node: KdlNode, block: _Block, source: Source) -> Mapping:
    """`job "name" key=value { … }`: its argument is its name."""
    found = renewed({}, node.name)
    label = f"'{node.name.text}'"
    for argument in node.arguments[:1] if block.has_name else []:
        found.entries["name"] = (scalar("name", node.name), argument)
    for argument in node.arguments[len(found.entries) :]:
        message = f"'{shorten(argument.text)}' is an extra value in {label}"
        source.note(source.refuse("kdl", message, argument, hint="write it as key=value"))
    _fill(found, [*_property_nodes(node), *node.children], block, label, source)
    return found


def _property_nodes(node: KdlNode) -> list[KdlNode]:
    """Treat `path="p"` like `path "p"` in the braces."""
    return [KdlNode(key, [value]) for key, value in node.properties]


def _map(node: KdlNode, source: Source) -> Mapping:
    """`parameters { i "1:5" }`."""
    found = renewed({}, node.name)
    for argument in node.arguments:
        message = f"'{shorten(argument.text)}' has no name in '{node.name.text}'"
        raise source.refuse("kdl", message, argument, hint=f"write it as {node.name.text} {{ name value }}")
    for child in (*_property_nodes(node), *node.children):
        with source.noting:
            put(found, child.name, _single_value(child, source), source)
    return found


def _all_values(node: KdlNode, source: Source) -> list[Scalar]:
    """`depends_on "a" "b"`."""
    strays = [*(key for key, _ in node.properties), *(child.name for child in node.children)]
    if strays:
        message = f"'{shorten(strays[0].text)}' is not allowed in '{node.name.text}', which only takes values"
        raise source.refuse("kdl", message, strays[0])
    if not node.arguments:
        hint = f"write it as {node.name.text} …"
        raise source.refuse("kdl", f"'{node.name.text}' has no value", node.name, hint=hint)
    return node.arguments


def _single_value(node: KdlNode, source: Source, *, is_json: bool = False) -> Node:
    """`command "make"`."""
    first, *others = _all_values(node, source)
    if others:
        message = f"'{node.name.text}' takes one value, but '{shorten(others[0].text)}' is another"
        raise source.refuse("kdl", message, others[0], hint="put the whole value in quotes")
    return _json(first, source) if is_json and first.is_text else first


def _json(node: Scalar, source: Source) -> Node:
    """Parse JSON in a text: KDL has no lists."""
    try:
        value = msgspec.json.decode(node.text)
    except msgspec.DecodeError:
        hint = 'quote a JSON string twice: #""text""#'
        raise source.refuse("kdl", "'data' must be JSON", node, hint=hint) from None
    return made(value, node)
