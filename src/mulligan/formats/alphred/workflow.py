"""A file of Alphred's as one of ours: what is said of the whole, where it starts, and which nodes are visited again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mulligan.formats.alphred.steps import Steps
from mulligan.formats.alphred.tree import Tree, TreeNode, read_tree
from mulligan.formats.translation import Translation, made, mapping
from mulligan.language.nodes import Mapping, Node, Sequence, Source, shorten
from mulligan.language.words import did_you_mean, listed


def translate(root: Node, translation: Translation) -> Mapping:
    """The tree of a file of Alphred's as the tree of one of ours."""
    source = translation.source
    tree = read_tree(root, source)
    starts = _starts(tree, source)
    revisited = _revisited(tree)
    steps = made(Steps(tree, starts, revisited, translation).all(), root)
    for remark in _remarks(tree):
        translation.remark(steps, remark)
    return mapping({"name": _name(tree), "description": _description(tree), "steps": steps}, root)


def _name(tree: Tree) -> str | None:
    return tree.fields.get("treeKey") or tree.fields.get("name") or None


def _description(tree: Tree) -> str | None:
    """The name that people read, where the key is the workflow's, and what it is for."""
    name = tree.fields.get("name") if tree.fields.get("treeKey") else None
    said = (text.strip() for text in (name, tree.fields.get("description")) if text)
    return ": ".join(filter(None, said)) or None


def _remarks(tree: Tree) -> Iterator[str]:
    """What is said of the file and means nothing for a run."""
    said = [f"{word} {tree.fields[key]}" for key, word in _OF_THE_FILE.items() if tree.fields.get(key) is not None]
    if said:
        yield f"Alphred: {', '.join(said)}"
    notes = tree.fields.get("versionNotes")
    if notes and notes.strip():
        yield f"version notes: {' '.join(notes.split())}"


_OF_THE_FILE = {"version": "version", "status": "status", "draftRevision": "revision"}


# -- where it starts -------------------------------------------------------------------------------------------------


def _starts(tree: Tree, source: Source) -> set[str]:
    """The nodes that have to be told that they start: those of closed loops, which no edge leads into."""
    arrivals = tree.arrivals()
    roots = {key for key, edges in arrivals.items() if not edges}
    named = _named_starts(tree, source)
    marked = {key for key in named if key not in roots and _is_closed(tree, key, roots)}
    lost = [key for key in named if key not in roots | marked]
    at = tree.fields.at("initialRunnableNodeKeys") if lost else None
    if at is not None:
        message = f"{listed(lost, 'and')} cannot start at once: an edge from another node leads there"
        source.warn("start", message, at)
    return marked


def _named_starts(tree: Tree, source: Source) -> list[str]:
    keys = tree.fields.get("initialRunnableNodeKeys") or ()
    node = tree.fields.at("initialRunnableNodeKeys") if keys else None
    entries = node.items if isinstance(node, Sequence) else []
    for key, entry in zip(keys, entries, strict=False):
        if key not in tree.nodes:
            hint = did_you_mean(key, tree.nodes)
            source.note(source.refuse("unknown_step", f"there is no node '{shorten(key)}'", entry, hint=hint))
    return [key for key in keys if key in tree.nodes]


def _is_closed(tree: Tree, key: str, roots: Iterable[str]) -> bool:
    """Whether no root leads to the node: it is part of a loop that has no beginning."""
    return key not in _reached(tree, roots)


def _reached(tree: Tree, keys: Iterable[str]) -> set[str]:
    """These nodes and all that edges lead to from them."""
    found = set(keys)
    todo = list(found)
    while todo:
        for edge in tree.nodes[todo.pop()].edges:
            if edge.target not in found:
                found.add(edge.target)
                todo.append(edge.target)
    return found


# -- loops -----------------------------------------------------------------------------------------------------------


def _revisited(tree: Tree) -> set[str]:
    """The nodes that may be visited more than once: what is reached from where an edge leads back to."""
    return _reached(tree, _led_back_to(tree))


def _led_back_to(tree: Tree) -> set[str]:
    """The targets of edges that close a loop, found by walking down every path once."""
    found: set[str] = set()
    done: set[str] = set()
    for start in tree.nodes.values():
        path: dict[str, None] = {}
        todo: list[tuple[TreeNode, int]] = [(start, 0)] if start.key not in done else []
        while todo:
            node, index = todo.pop()
            path[node.key] = None
            if index == len(node.edges):
                del path[node.key]
                done.add(node.key)
                continue
            todo.append((node, index + 1))
            target = node.edges[index].target
            if target in path:
                found.add(target)
            elif target not in done:
                todo.append((tree.nodes[target], 0))
    return found
