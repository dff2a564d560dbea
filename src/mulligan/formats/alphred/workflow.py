"""A file of Alphred's as one of ours: what is said of the whole, where it starts, and which nodes are visited again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mulligan.formats.alphred.steps import Steps
from mulligan.formats.alphred.tree import Tree, TreeNode, read_tree
from mulligan.formats.translation import Translation, made, mapping
from mulligan.language.nodes import Mapping, Node, Sequence, Source, shorten
from mulligan.language.suggestions import did_you_mean


def translate(root: Node, translation: Translation) -> Mapping:
    """The tree of a file of Alphred's as the tree of one of ours."""
    source = translation.source
    tree = read_tree(root, source)
    roots = {key for key, edges in tree.arrivals().items() if not edges}
    starts = _starts(tree, roots, source)
    steps = made(Steps(tree, starts, _revisited(tree), translation).all(), root)
    for remark in _remarks(tree):
        translation.remark(steps, remark)
    whole = {
        "name": _name(tree),
        "description": _description(tree),
        # Alphred takes up one node at a time, the first by its index. From one root our edges do that by themselves.
        "max_parallel": 1 if len(roots | starts) > 1 else None,
        "steps": steps,
    }
    return mapping(whole, root)


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


def _starts(tree: Tree, roots: set[str], source: Source) -> set[str]:
    """The nodes that have to be told that they start: in loops that no edge leads into, the one that the file names,
    else the first. Alphred has no way to start there, and waits for ever."""
    named = [key for key in _named_starts(tree, source) if key not in roots]
    reached = _reached(tree, roots)
    for key in named:
        if key in reached:
            message = f"'{key}' does not start at once: it waits for the edges that lead to it"
            source.warn("start", message, tree.fields.at("initialRunnableNodeKeys"))
    found = {key for key in named if key not in reached}
    reached |= _reached(tree, found)
    for key in tree.nodes:
        if key not in reached:
            found.add(key)
            reached |= _reached(tree, [key])
    return found


def _named_starts(tree: Tree, source: Source) -> list[str]:
    keys = tree.fields.get("initialRunnableNodeKeys") or ()
    node = tree.fields.at("initialRunnableNodeKeys") if keys else None
    entries = node.items if isinstance(node, Sequence) else []
    for key, entry in zip(keys, entries, strict=False):
        if key not in tree.nodes:
            hint = did_you_mean(key, tree.nodes)
            source.note(source.refuse("unknown_step", f"there is no node '{shorten(key)}'", entry, hint=hint))
    return [key for key in keys if key in tree.nodes]


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
