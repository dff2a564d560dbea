"""A whole Alphred file as a workflow: its name and description, where it starts, and which nodes loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mulligan.core.model.text.formatting import quote_names
from mulligan.formats.alphred.steps import REPAIR_VISITS_MAX, StepBuilder
from mulligan.formats.alphred.tree import Tree, TreeEdge, TreeNode, read_tree
from mulligan.formats.translation import Translation, made, mapping
from mulligan.language.text.nodes import Mapping, Node, Sequence, Source, shorten
from mulligan.language.text.suggestions import did_you_mean


def translate(root: Node, translation: Translation) -> Mapping:
    """Translate the tree of an Alphred file to the tree of a workflow file."""
    source = translation.source
    tree = read_tree(root, source)
    for edge, keys in _endless_loops(tree):
        message = f"{quote_names(keys)} {'leads' if len(keys) == 1 else 'lead'} back to the start without a condition"
        hint = "add a guardExpression to one of the edges, so that the loop can end"
        source.note(source.refuse("endless_loop", f"{message}: the loop never ends", edge.at, hint=hint))
    roots = {key for key, edges in tree.incoming_edges().items() if not edges}
    starts = _explicit_starts(tree, roots, source)
    # All that can be reached from the target of a loop may be visited more than once.
    revisited, repairs = _reachable(tree, _loop_targets(tree)), _repair_loops(tree)
    for key, edge in repairs.items():
        message = f"'{key}' repairs a failure and then leads back to what failed; it is visited at most"
        source.warn("repair_loop", f"{message} {REPAIR_VISITS_MAX} times", edge.at)
    builder = StepBuilder(tree, starts, translation, revisited=revisited, repairs=set(repairs))
    steps = made(builder.build(), root)
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
            source.note(source.refuse_unknown(f"there is no node '{shorten(key)}'", key, entry, hint=hint))
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


def _repair_loops(tree: Tree) -> dict[str, TreeEdge]:
    """The nodes that only failures lead to and that lead back to what failed, each with an edge that leaves it."""
    incoming = tree.incoming_edges()
    found: dict[str, TreeEdge] = {}
    for node in tree.nodes.values():
        if not incoming[node.key] or any(edge.on != "failure" for _, edge in incoming[node.key]):
            continue
        after = _reachable(tree, [edge.target for edge in node.edges_on("success")])
        if any(source.key in after for source, _ in incoming[node.key]):
            found[node.key] = node.edges_on("success")[0]
    return found


def _endless_loops(tree: Tree) -> Iterator[tuple[TreeEdge, list[str]]]:
    """Each loop in which every node continues without a guard: the edge that closes it, and its nodes.

    Only a failure ends such a loop, after as many agent calls as the limit of visits allows.
    """
    only_ways = {node.key: edge for node in tree.nodes.values() if (edge := _only_way(node))}
    done: set[str] = set()
    for start in only_ways:
        path: dict[str, None] = {}
        key = start
        while key in only_ways and key not in done and key not in path:
            path[key] = None
            key = only_ways[key].target
        if key in path:
            keys = list(path)
            yield only_ways[keys[-1]], keys[keys.index(key) :]
        done.update(path)


def _only_way(node: TreeNode) -> TreeEdge | None:
    """The edge that is taken whenever the node succeeds; None if guards are asked first, or a person."""
    edges = node.edges_on("success")
    return edges[0] if edges and edges[0].guard is None and node.kind != "human" else None


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
