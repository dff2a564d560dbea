"""Which route a path belongs to: a tree over its segments, so that a request does not try sixty expressions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote

from mulligan.api.http.routing import Route

_PARAMETER = re.compile(r"\{(\w+)(:int)?\}(:\w+)?")
# What a database can count.
_DIGITS_MAX = 18


@dataclass
class _Node:
    literals: dict[str, _Node] = field(default_factory=dict)
    # Those with a verb behind them stand before the others: `{name}:publish` before `{name}`.
    parameters: dict[tuple[str, bool], _Node] = field(default_factory=dict)
    routes: dict[str, tuple[Route, tuple[str, ...]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """The routes of a path by method, each with the names of its parameters, and their values."""

    routes: dict[str, tuple[Route, tuple[str, ...]]]
    values: tuple[str, ...]

    def route(self, method: str) -> tuple[Route, dict[str, str]] | None:
        """The route for a method, with its parameters. HEAD is answered by GET."""
        found = self.routes.get("GET" if method == "HEAD" else method)
        return None if found is None else (found[0], dict(zip(found[1], self.values, strict=True)))

    @property
    def methods(self) -> list[str]:
        """What the header `Allow` says."""
        return sorted([*self.routes, *(["HEAD"] if "GET" in self.routes else []), "OPTIONS"])


class PathTable:
    """The routes by path."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            self._add(route)
        _sort(self._root)

    def _add(self, route: Route) -> None:
        node, names = self._root, []
        for segment in _segments(route.full_path):
            if match := _PARAMETER.fullmatch(segment):
                name, kind, verb = match.groups()
                names.append(name)
                node = node.parameters.setdefault((verb or "", kind is not None), _Node())
            else:
                node = node.literals.setdefault(segment, _Node())
        if route.method in node.routes:
            raise ValueError(f"two routes for {route.name}")
        node.routes[route.method] = route, tuple(names)

    def find(self, raw_path: str) -> Found | None:
        """The routes of a path, which is still percent-encoded. UnicodeDecodeError if it is no text."""
        return _find(self._root, _segments(raw_path), 0, ())


def _segments(path: str) -> list[str]:
    return path.split("/")[1:]


def _sort(node: _Node) -> None:
    node.parameters = dict(sorted(node.parameters.items(), key=lambda one: (not one[0][0], not one[0][1])))
    for below in (*node.literals.values(), *node.parameters.values()):
        _sort(below)


def _find(node: _Node, segments: list[str], index: int, values: tuple[str, ...]) -> Found | None:
    if index == len(segments):
        return Found(node.routes, values) if node.routes else None
    segment = segments[index]
    below = node.literals.get(segment)
    if below is not None and (found := _find(below, segments, index + 1, values)):
        return found
    for (verb, is_number), below in node.parameters.items():
        if not segment.endswith(verb):
            continue
        value = unquote(segment.removesuffix(verb), errors="strict")
        if value and (not is_number or _is_number(value)):
            found = _find(below, segments, index + 1, (*values, value))
            if found:
                return found
    return None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
