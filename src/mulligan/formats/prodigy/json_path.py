"""The part of JSONPath that Prodigy knows: `$`, `.f`, `['f']`, `[n]`, `[a:b]`, `[*]`, `..f`, `[?(@.f > 1)]`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from mulligan.formats.prodigy.conditions import condition
from mulligan.formats.prodigy.grammar import GrammarRefused

# One step of a path: from a value to those that it leads to.
_Step = Callable[[Any], Iterator[Any]]
_NAME = r"[^\W\d][\w-]*"
_TOKEN = re.compile(
    rf"""
      \.\.(?P<deep>{_NAME}|\*)
    | \.(?P<every>\*) | \[(?P<all>\*)\]
    | \.(?P<name>{_NAME}) | \[\s*(?P<quoted>'[^']*'|"[^"]*")\s*\]
    | \[\s*(?P<index>-?\d+)\s*\]
    | \[\s*(?P<start>-?\d*)\s*:\s*(?P<stop>-?\d*)\s*\]
    | \[\?\s*\(?(?P<filter>.*?)\)?\s*\](?=$|[.\[])
    """,
    re.X,
)


def items_at(text: str) -> Callable[[Any], list[Any]]:
    """The items that a path finds in a value: those of the list that it leads to, else all that it finds."""
    steps, is_one_place = _read(text)

    def find(value: Any) -> list[Any]:
        found = [value]
        for step in steps:
            found = [inner for one in found for inner in step(one)]
        is_list = is_one_place and len(found) == 1 and isinstance(found[0], list)
        return list(found[0]) if is_list else found

    return find


def _read(text: str) -> tuple[list[_Step], bool]:
    """The steps of a path, and whether it can lead to one place only."""
    path = text.strip()
    offset = text.find(path)
    position = 1 if path.startswith("$") else 0
    if not path.startswith(("$", ".", "[")):
        path, offset = f".{path}", offset - 1
    steps, is_one_place = [], True
    while position < len(path):
        token = _TOKEN.match(path, position)
        if token is None:
            raise GrammarRefused(
                f"'{path[position:]}' is not expected in a path", offset + position, len(path) - position
            )
        steps.append(_step(token, offset))
        is_one_place = is_one_place and (token["name"] or token["quoted"] or token["index"]) is not None
        position = token.end()
    return steps, is_one_place


def _step(token: re.Match[str], offset: int) -> _Step:
    if token["deep"]:
        return lambda value: _below(value, token["deep"])
    if token["every"] or token["all"]:
        return _children
    if token["name"] or token["quoted"]:
        name = token["name"] or token["quoted"][1:-1]
        return lambda value: iter([value[name]] if isinstance(value, dict) and name in value else [])
    if token["index"]:
        index = int(token["index"])
        return lambda value: iter(value[index:][:1] if index != -1 else value[-1:]) if _is_list(value) else iter(())
    if token["filter"] is not None:
        return _filtered(token, offset)
    start, stop = (int(token[name]) if token[name] else None for name in ("start", "stop"))
    return lambda value: iter(value[start:stop] if _is_list(value) else [])


def _filtered(token: re.Match[str], offset: int) -> _Step:
    try:
        holds = condition(token["filter"])
    except GrammarRefused as refused:
        start = offset + token.start("filter") + refused.offset
        raise GrammarRefused(refused.message, start, refused.length) from None
    return lambda value: (inner for inner in _children(value) if holds(inner))


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _below(value: Any, name: str) -> Iterator[Any]:
    """Every field of this name, however deep, from the top down."""
    if isinstance(value, dict):
        yield from (inner for key, inner in value.items() if name in ("*", key))
    elif isinstance(value, list) and name == "*":
        yield from value
    for inner in _children(value):
        yield from _below(inner, name)
