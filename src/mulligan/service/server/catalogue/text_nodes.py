"""Places in the text of a workflow: where its keys and items stand, and how something is written beside them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from mulligan.errors import InputInvalid

CHARS_MAX = 500_000
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Reads every scalar as text: a value does not depend on which YAML it is, and `on` is a key of ours, no truth value.
AS_TEXTS: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_WORD = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
NOT_TEXT = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
BY_HAND = "edit the text itself, and check it"


def refuse_long_text(text: str) -> None:
    if len(text) > CHARS_MAX:
        raise InputInvalid(f"the text has {len(text):,} characters, and {CHARS_MAX:,} can be edited", hint=BY_HAND)


def load_nodes(text: str, loader_type: Any = _LOADER) -> tuple[Any, Any]:
    """The nodes of a text, with their positions, and its values."""
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=_LOADER)):
            # A value that stands in several places; comparing such values may also take for ever.
            raise InputInvalid("the text has YAML aliases, so it cannot be edited in place", hint=BY_HAND)
        loader = loader_type(text)
        try:
            node = loader.get_single_node()
            return node, loader.construct_document(node) if node is not None else None
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputInvalid("the text cannot be read as YAML, so it cannot be edited", hint=BY_HAND) from error


def pair_of(node: Any, key: str) -> tuple[Any, Any] | None:
    """The nodes of a key and its value. None if it is not there, or if the node has no keys."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((pair for pair in pairs if pair[0].value == key), None)


def end_of(text: str, node: Any) -> int:
    """Where a value ends, without the lines and comments behind it."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        begin: int = node.start_mark.index
        end: int = node.end_mark.index
        return begin + len(text[begin:end].rstrip())
    last = node.value[-1]
    return end_of(text, last[1] if isinstance(last, tuple) else last)


def line_end(text: str, at: int) -> int:
    """The end of the line, behind a comment in it."""
    found = text.find("\n", at)
    return len(text) if found < 0 else found


def insert_key(text: str, node: Any, key: str, value: str) -> str:
    """The text with one more key at the end of a mapping."""
    end = end_of(text, node.value[-1][1])
    if end == node.value[-1][1].start_mark.index:
        # The last key has no value: its own end counts.
        end = max(end, text.index(":", node.value[-1][0].end_mark.index) + 1)
    if node.flow_style:
        return f"{text[:end]}, {key_text(key)}: {value}{text[end:]}"
    end = line_end(text, end)
    return f"{text[:end]}\n{' ' * node.value[0][0].start_mark.column}{key_text(key)}: {value}{text[end:]}"


def insert_item(text: str, items: Any, item: str) -> str:
    """The text with one more item at the end of a list that has some."""
    end = end_of(text, items.value[-1])
    if items.flow_style:
        return f"{text[:end]}, {item}{text[end:]}"
    end = line_end(text, end)
    return f"{text[:end]}\n{' ' * items.start_mark.column}- {item}{text[end:]}"


def key_text(key: str) -> str:
    is_plain = key.isascii() and key.replace("_", "").isalnum() and not key[:1].isdigit()
    return key if is_plain else json.dumps(key, ensure_ascii=False)


def flow_text(value: Any) -> str:
    """A value in one line: words as they are, everything else as JSON."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key_text(str(key))}: {flow_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow_text, value)) + "]"
    if isinstance(value, str) and _WORD.fullmatch(value) and value.lower() not in NOT_TEXT:
        return value
    return json.dumps(value, ensure_ascii=False)


def block_text(value: Any, column: int) -> str:
    """A value behind a key in a step that is written over several lines: scripts as blocks, all else in one line."""
    is_script = isinstance(value, str) and "\n" in value.strip("\n") and value == value.strip("\n") + "\n"
    if not is_script or any(line[:1].isspace() for line in value.splitlines()[:1]):
        return flow_text(value) if isinstance(value, Mapping | list | tuple) else json.dumps(value, ensure_ascii=False)
    indent = " " * (column + 2)
    return "|\n" + "\n".join(f"{indent}{line}" if line else "" for line in value.splitlines())
