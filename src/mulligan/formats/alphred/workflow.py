"""A whole Alphred file as a workflow: its name and description, where it starts, and which nodes loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mulligan.formats.alphred.steps import StepBuilder
from mulligan.formats.alphred.tree import Tree, TreeNode, read_tree
from mulligan.formats.translation import Translation, made, mapping
from mulligan.language.nodes import Mapping, Node, Sequence, Source, shorten
from mulligan.language.suggestions import did_you_mean


def translate(root: Node, translation: Translation) -> Mapping:
    """Translate the tree of an Alphred file to the tree of a workflow file."""
    source = translation.source
    tree = read_tree(root, source)
    roots = {key for key, edges in tree.incoming_edges().items() if not edges}
    starts = _explicit_starts(tree, roots, source)
    steps = made(StepBuilder(tree, starts, _revisited_nodes(tree), translation).build(), root)
    for remark in _remarks(tree):
        translation.remark(steps, remark)
    whole = {
        "name": tree.fields.get("treeKey") or tree.fields.get("name") or None,
        "description": _description(tree),
        # Alphred runs one node at a time, by index. With a single root our edges have the same effect.
        "max_parallel": 1 if len(roots | starts) > 1 else None,
        "steps": steps,
    }
    return mapping(whole, root)


def _description(tree: Tree) -> str | None:
    """The readable name, if the workflow is named by its key, and the description."""
    name = tree.fields.get("name") if tree.fields.get("treeKey") else None
    parts = (text.strip() for text in (name, tree.fields.get("description")) if text)
    return ": ".join(filter(None, parts)) or None


def _remarks(tree: Tree) -> Iterator[str]:
    """Facts about the file that have no effect on a run."""
    facts = [f"{word} {tree.fields[key]}" for key, word in _FILE_FACTS.items() if tree.fields.get(key) is not None]
    if facts:
        yield f"Alphred: {', '.join(facts)}"
    notes = tree.fields.get("versionNotes")
    if notes and notes.strip():
        yield f"version notes: {' '.join(notes.split())}"


_FILE_FACTS = {"version": "version", "status": "status", "draftRevision": "revision"}


# -- where it starts -------------------------------------------------------------------------------------------------


def _explicit_starts(tree: Tree, roots: set[str], source: Source) -> set[str]:
    """The nodes that need `start`: in a loop without an edge into it, the node that the file names, or the first.

    Alphred cannot start such a loop and waits forever.
    """
    named = [key for key in _named_starts(tree, source) if key not in roots]
    reached = _reachable(tree, roots)
    for key in named:
        if key in reached:
            message = f"'{key}' does not start immediately: it waits for its incoming edges"
            source.warn("start", message, tree.fields.at("initialRunnableNodeKeys"))
    found = {key for key in named if key not in reached}
    reached |= _reachable(tree, found)
    for key in tree.nodes:
        if key not in reached:
            found.add(key)
            reached |= _reachable(tree, [key])
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


def _reachable(tree: Tree, keys: Iterable[str]) -> set[str]:
    """These nodes and all nodes that can be reached from them."""
    found = set(keys)
    todo = list(found)
    while todo:
        for edge in tree.nodes[todo.pop()].edges:
            if edge.target not in found:
                found.add(edge.target)
                todo.append(edge.target)
    return found


# -- loops -----------------------------------------------------------------------------------------------------------


def _revisited_nodes(tree: Tree) -> set[str]:
    """The nodes that may be visited more than once: all that can be reached from the target of a loop."""
    return _reachable(tree, _loop_targets(tree))


def _loop_targets(tree: Tree) -> set[str]:
    """The targets of edges that close a loop, found by a depth-first search."""
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
