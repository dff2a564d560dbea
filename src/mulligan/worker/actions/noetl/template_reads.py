"""What a template reads: the names and paths that its value is made of, so that one can say where that comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from jinja2 import nodes

from mulligan.worker.actions.noetl.answers import MISSING, looked_up
from mulligan.worker.actions.noetl.file_texts import FileText, is_of_file
from mulligan.worker.actions.noetl.sandbox import VALUES


class Path(NamedTuple):
    """A name, and the keys that follow it as far as they are written out: `workload.tables[0]`."""

    root: str
    keys: tuple[Any, ...] = ()


class Locals:
    """The names that a template gives values itself, by `set`, `for`, `with` and `macro`: what they are made of.

    A name is taken for all that the template ever gives it: which of these it holds where it is read is not asked.
    """

    def __init__(self, tree: nodes.Template) -> None:
        self._sources: dict[str, list[nodes.Node]] = {}
        for node in tree.find_all((nodes.Assign, nodes.AssignBlock, nodes.For, nodes.With, nodes.Macro)):
            self._note(node)

    def paths(self, node: nodes.Node) -> frozenset[Path]:
        """All that the value of an expression is made of. What it only depends on, as on a condition, is not."""
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
            self._give(node.target, node.node)
        elif isinstance(node, nodes.AssignBlock):
            self._give(node.target, *node.body, *([node.filter] if node.filter else []))
        elif isinstance(node, nodes.For):
            self._give(node.target, node.iter)
            self._sources.setdefault("loop", []).append(node.iter)
        elif isinstance(node, nodes.With):
            for target, value in zip(node.targets, node.values, strict=True):
                self._give(target, value)
        elif isinstance(node, nodes.Macro):
            # What it is called with is read where it is called.
            self._sources.setdefault(node.name, []).extend([*node.body, *node.defaults])

    def _give(self, target: nodes.Node, *sources: nodes.Node) -> None:
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
    """A path as far as it is written out, and what is read on the way."""
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
def reads(text: str) -> frozenset[Path]:
    """All that a template reads anywhere in it."""
    tree = VALUES.parse(text)
    return Locals(tree).paths(tree)


def are_of_file(paths: frozenset[Path], names: Mapping[str, Any]) -> bool:
    """Whether all that is read is the file's own: then so is whatever a template makes of it."""
    return all(is_of_file(_found(path, names)) for path in paths if path.root in names)


def are_given_empty(paths: frozenset[Path], names: Mapping[str, Any]) -> bool:
    """Whether a text that is read is not the file's: an empty one, too, which is harmless elsewhere."""
    read = [_found(path, names) for path in paths if path.root in names and not _leads_nowhere(path, names)]
    return any((value == "" and not isinstance(value, FileText)) or not is_of_file(value) for value in read)


def _leads_nowhere(path: Path, names: Mapping[str, Any]) -> bool:
    """Whether a mapping on the way does not have the key: what stands there then is a default of the template."""
    value = names[path.root]
    for key in path.keys:
        inner = looked_up(value, key) if isinstance(key, str | int) else MISSING
        if inner is MISSING:
            return isinstance(value, Mapping)
        value = inner
    return False


def _found(path: Path, names: Mapping[str, Any]) -> Any:
    """What is at the path; where it leads nowhere, or to a method, what that would be of."""
    value = names[path.root]
    for key in path.keys:
        inner = looked_up(value, key) if isinstance(key, str | int) else MISSING
        if inner is MISSING and type(value) is list and type(key) is int and -len(value) <= key < len(value):
            inner = value[key]
        if inner is MISSING:
            break
        value = inner
    return value
