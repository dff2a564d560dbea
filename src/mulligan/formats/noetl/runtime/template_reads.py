"""Find the names and paths that the value of a template is made of, to know where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from jinja2 import nodes

from mulligan.formats.noetl.runtime.answers import MISSING, look_up
from mulligan.formats.noetl.runtime.file_texts import FileText, is_from_file
from mulligan.formats.noetl.runtime.sandbox import VALUES


class Path(NamedTuple):
    """A name, and the constant keys that follow it: `workload.tables[0]`."""

    root: str
    keys: tuple[Any, ...] = ()


class Locals:
    """The names that a template defines itself, by `set`, `for`, `with` and `macro`, and what they are made of.

    A name counts as made of all values that the template ever gives it.
    """

    def __init__(self, tree: nodes.Template) -> None:
        self._sources: dict[str, list[nodes.Node]] = {}
        for node in tree.find_all((nodes.Assign, nodes.AssignBlock, nodes.For, nodes.With, nodes.Macro)):
            self._note(node)

    def paths(self, node: nodes.Node) -> frozenset[Path]:
        """All that the value of an expression is made of. A condition that only selects is not included."""
        found: set[Path] = set()
        waiting, done = [*_paths(node)], set[str]()
        while waiting:
            path = waiting.pop()
            found.add(path)
            if path.root in self._sources and path.root not in done:
                done.add(path.root)
                waiting += [inner for source in self._sources[path.root] for inner in _paths(source)]
        return frozenset(found)

    def _note(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.Assign):
            self._define(node.target, node.node)
        elif isinstance(node, nodes.AssignBlock):
            self._define(node.target, *node.body, *([node.filter] if node.filter else []))
        elif isinstance(node, nodes.For):
            self._define(node.target, node.iter)
            self._sources.setdefault("loop", []).append(node.iter)
        elif isinstance(node, nodes.With):
            for target, value in zip(node.targets, node.values, strict=True):
                self._define(target, value)
        elif isinstance(node, nodes.Macro):
            # Its arguments are read where it is called.
            self._sources.setdefault(node.name, []).extend([*node.body, *node.defaults])

    def _define(self, target: nodes.Node, *sources: nodes.Node) -> None:
        for name in [target, *target.find_all((nodes.Name, nodes.NSRef))]:
            if isinstance(name, nodes.Name | nodes.NSRef):
                self._sources.setdefault(name.name, []).extend(sources)


def _paths(node: nodes.Node | None) -> Iterator[Path]:
    if node is None:
        return
    if isinstance(node, nodes.Name):
        yield Path(node.name)
    elif isinstance(node, nodes.CondExpr):
        yield from _paths(node.expr1)
        yield from _paths(node.expr2)
    elif isinstance(node, nodes.Getattr | nodes.Getitem):
        yield from _chain(node)
    else:
        for child in node.iter_child_nodes():
            yield from _paths(child)


def _chain(node: nodes.Getattr | nodes.Getitem) -> Iterator[Path]:
    """A path with its constant keys, and the paths read in other keys."""
    links: list[nodes.Node] = [node]
    while isinstance(links[-1], nodes.Getattr | nodes.Getitem):
        links.append(links[-1].node)
    start, *above = reversed(links)
    keys: list[Any] = []
    is_whole = True
    for link in above:
        argument = link.arg if isinstance(link, nodes.Getitem) else None
        is_whole = is_whole and (argument is None or isinstance(argument, nodes.Const))
        if is_whole:
            keys.append(argument.value if isinstance(argument, nodes.Const) else getattr(link, "attr", None))
        elif argument is not None:
            yield from _paths(argument)
    if isinstance(start, nodes.Name):
        yield Path(start.name, tuple(keys))
    else:
        yield from _paths(start)


@lru_cache(maxsize=1024)
def paths_read(text: str) -> frozenset[Path]:
    """All paths that a template reads."""
    tree = VALUES.parse(text)
    return Locals(tree).paths(tree)


def are_from_file(paths: frozenset[Path], names: Mapping[str, Any]) -> bool:
    """Whether all values that are read come from the file: then so does what a template makes of them."""
    return all(is_from_file(_value_at(path, names)) for path in paths if path.root in names)


def are_run_values(paths: frozenset[Path], names: Mapping[str, Any]) -> bool:
    """Whether a text that is read does not come from the file, also an empty one, which is harmless elsewhere."""
    read = [_value_at(path, names) for path in paths if path.root in names and not _is_missing(path, names)]
    return any((value == "" and not isinstance(value, FileText)) or not is_from_file(value) for value in read)


def _is_missing(path: Path, names: Mapping[str, Any]) -> bool:
    """Whether a mapping on the path does not have the key, so that a default of the template is used."""
    value = names[path.root]
    for key in path.keys:
        inner = look_up(value, key) if isinstance(key, str | int) else MISSING
        if inner is MISSING:
            return isinstance(value, Mapping)
        value = inner
    return False


def _value_at(path: Path, names: Mapping[str, Any]) -> Any:
    """The value at the path; where a key is missing, or is a method, the last value before it."""
    value = names[path.root]
    for key in path.keys:
        inner = look_up(value, key) if isinstance(key, str | int) else MISSING
        if inner is MISSING and type(value) is list and type(key) is int and -len(value) <= key < len(value):
            inner = value[key]
        if inner is MISSING:
            break
        value = inner
    return value
