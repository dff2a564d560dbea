"""A file of Alphred's, read and checked: its nodes in their order, each with the edges that leave it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from mulligan.formats.alphred.keys import DRAFT, EDGE, MAX_CHILDREN_DEFAULT, NODE, PHASE, PHASES, TRANSITION
from mulligan.formats.names import Names
from mulligan.language.nodes import Mapping, Node, Refusal, Source
from mulligan.language.shapes import Fields, Record
from mulligan.language.suggestions import did_you_mean


@dataclass(slots=True)
class TreeEdge:
    """An edge. `at` is what is pointed at when something is wrong with where it leads."""

    target: str
    at: Node
    fields: Fields
    guard: Node | None
    on: str = "success"
    priority: int | None = None


@dataclass(slots=True)
class TreeNode:
    """A node as both forms of the file say it. `key_at` is its name in the file, `fields` the rest of what it says."""

    key: str
    key_at: Node
    fields: Fields
    kind: str
    prompt: str
    prompt_at: Node
    title: str = ""
    role: str = "standard"
    max_children: int = MAX_CHILDREN_DEFAULT
    # The step that it becomes.
    step: str = ""
    edges: list[TreeEdge] = field(default_factory=list)

    def leaving(self, on: str) -> list[TreeEdge]:
        """Its edges of one kind, in the order in which they are looked at; those without a priority come last."""
        found = [edge for edge in self.edges if edge.on == on]
        return sorted(found, key=lambda edge: (edge.priority is None, edge.priority or 0))


@dataclass(slots=True)
class Tree:
    """A whole file. Nodes in the order in which Alphred takes them up, by their keys."""

    fields: Fields
    nodes: dict[str, TreeNode]
    names: Names

    def arrivals(self) -> dict[str, list[tuple[TreeNode, TreeEdge]]]:
        """The edges that lead to each node."""
        found: dict[str, list[tuple[TreeNode, TreeEdge]]] = {key: [] for key in self.nodes}
        for node in self.nodes.values():
            for edge in node.edges:
                found[edge.target].append((node, edge))
        return found


def read_tree(root: Node, source: Source) -> Tree:
    """The file, with everything that is wrong with it noted."""
    is_old = isinstance(root, Mapping) and "phases" in root.entries and "nodes" not in root.entries
    tree = _read_phases(root, source) if is_old else _read_draft(root, source)
    _drop_lost_edges(tree, source)
    for node in tree.nodes.values():
        _note_equal_priorities(node, source)
    return tree


# -- the draft -------------------------------------------------------------------------------------------------------


def _read_draft(root: Node, source: Source) -> Tree:
    fields: Fields = DRAFT.read(root, "the workflow", source)
    read = [_node(said) for said in _records(fields, "nodes", NODE, "a node", source)]
    _note_equal_indexes(read, source)
    tree = _tree(fields, sorted(read, key=_order), source)
    for said in _records(fields, "edges", EDGE, "an edge", source):
        with source.noting:
            _add_edge(tree, said, source)
    return tree


def _records(fields: Fields, key: str, record: Record, label: str, source: Source) -> list[Fields]:
    """The entries of a list that have what they must; of the others it was noted what is missing."""
    found: list[Fields] = []
    for entry in fields.get(key) or ():
        with source.noting:
            found.append(record.read(entry, label, source))
    return [said for said in found if all(word in said for word in record.required)]


def _node(said: Fields) -> TreeNode:
    template = said.get("promptTemplate")
    return TreeNode(
        key=said["nodeKey"],
        key_at=said.at("nodeKey"),
        fields=said,
        kind=said.get("nodeType") or "agent",
        prompt=template.get("content", "") if template else "",
        prompt_at=template.at("content") if template and "content" in template else said.node,
        title=said.get("displayName") or "",
        role=said.get("nodeRole") or "standard",
        max_children=_or(said.get("maxChildren"), MAX_CHILDREN_DEFAULT),
    )


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _order(node: TreeNode) -> tuple[bool, int, str]:
    """As Alphred chooses the next node. One without an index has no claim to come before any other."""
    index = node.fields.get("sequenceIndex")
    return index is None, index or 0, node.key if index is not None else ""


def _note_equal_indexes(nodes: list[TreeNode], source: Source) -> None:
    first: dict[int, TreeNode] = {}
    for node in nodes:
        index = node.fields.get("sequenceIndex")
        other = first.setdefault(index, node) if index is not None else node
        if other is not node:
            message = f"node '{node.key}' has the sequenceIndex {index}, and so has '{other.key}'"
            hint = "each node has its own: they say who comes first"
            source.note(source.refuse("sequence_index", message, node.fields.at("sequenceIndex"), hint=hint))


def _tree(fields: Fields, nodes: list[TreeNode], source: Source) -> Tree:
    tree = Tree(fields, {}, Names.of_steps())
    for node in nodes:
        if node.key in tree.nodes:
            line = source.number(tree.nodes[node.key].key_at)
            message = f"there are two nodes '{node.key}': the other is in line {line}"
            source.note(source.refuse("duplicate_step", message, node.key_at))
            continue
        node.step = tree.names.fit(node.key)
        tree.nodes[node.key] = node
    return tree


def _add_edge(tree: Tree, said: Fields, source: Source) -> None:
    if (said.get("edgeKind") or "tree") != "tree":
        message = f"an edge of the kind '{said['edgeKind']}' is made while a run goes on, and is no part of a workflow"
        raise source.refuse("edge", message, said.at("edgeKind"), hint="remove it")
    owner = tree.nodes.get(said["sourceNodeKey"])
    if owner is None:
        raise _no_node(said["sourceNodeKey"], said.at("sourceNodeKey"), tree, source)
    _append_edge(owner, said, "targetNodeKey", "guardExpression", source)


def _append_edge(owner: TreeNode, said: Fields, target: str, guard: str, source: Source) -> None:
    edge = TreeEdge(
        target=said[target],
        at=said.at(target),
        fields=said,
        guard=said.get(guard),
        on=said.get("routeOn") or "success",
        priority=said.get("priority"),
    )
    owner.edges.append(edge)
    _check_edge(owner, edge, guard, source)


def _check_edge(owner: TreeNode, edge: TreeEdge, guard: str, source: Source) -> None:
    """Alphred's own rules: a route on failure has no condition, any other has one unless it is 'auto'."""
    is_auto, where = edge.fields.get("auto"), f"the edge from '{owner.key}' to '{edge.target}'"
    if edge.on == "terminal":
        message = f"{where} is taken on 'terminal', which is for the edges that a spawner makes while it runs"
        raise source.refuse("edge", message, edge.fields.at("routeOn"), hint="write 'success' or 'failure'")
    if edge.on == "failure" and edge.guard is not None:
        message = f"{where} is taken on failure and has a guard: the choice depends on the failure alone"
        raise source.refuse("edge", message, edge.fields.key(guard), hint=f"remove '{guard}'")
    if edge.on == "failure" and is_auto is False:
        message = f"{where} is taken on failure and is not 'auto', and only a guard could say when"
        raise source.refuse("edge", message, edge.fields.at("auto"), hint="write true, or remove it")
    if is_auto and edge.guard is not None:
        message = f"{where} is 'auto', which is always, and has a guard, which is not"
        raise source.refuse("edge", message, edge.fields.key(guard), hint="keep one of them")
    if edge.on == "success" and is_auto is False and edge.guard is None:
        message = f"{where} is not 'auto' and has no guard, so it would never be taken"
        raise source.refuse("edge", message, edge.fields.at("auto"), hint=f"add '{guard}', or write true")


def _no_node(key: str, at: Node, tree: Tree, source: Source) -> Refusal:
    return source.refuse("unknown_step", f"there is no node '{key}'", at, hint=did_you_mean(key, tree.nodes))


def _drop_lost_edges(tree: Tree, source: Source) -> None:
    """Note edges that lead nowhere. What comes after may count on the others."""
    for node in tree.nodes.values():
        for edge in node.edges:
            with source.noting:
                if edge.target not in tree.nodes:
                    raise _no_node(edge.target, edge.at, tree, source)
        node.edges = [edge for edge in node.edges if edge.target in tree.nodes]


def _note_equal_priorities(node: TreeNode, source: Source) -> None:
    taken: set[tuple[str, int]] = set()
    for edge in node.edges:
        if edge.priority is None:
            continue
        if (edge.on, edge.priority) in taken:
            message = f"node '{node.key}' has two {edge.on} edges of the priority {edge.priority}"
            hint = "each has its own: they say which is looked at first"
            source.note(source.refuse("priority", message, edge.fields.at("priority"), hint=hint))
        taken.add((edge.on, edge.priority))


# -- phases, the older form ------------------------------------------------------------------------------------------


def _read_phases(root: Node, source: Source) -> Tree:
    fields: Fields = PHASES.read(root, "the workflow", source)
    tree = _tree(fields, [_phase(said) for said in _records(fields, "phases", PHASE, "a phase", source)], source)
    for node in tree.nodes.values():
        for said in _records(node.fields, "transitions", TRANSITION, "a transition", source):
            with source.noting:
                _append_edge(node, said, "target", "when", source)
    if not any("transitions" in node.fields for node in tree.nodes.values()):
        _chain(list(tree.nodes.values()))
    return tree


def _phase(said: Fields) -> TreeNode:
    at = said.at("prompt") if "prompt" in said else said.node
    return TreeNode(said["name"], said.at("name"), said, said.get("type") or "agent", said.get("prompt") or "", at)


def _chain(nodes: list[TreeNode]) -> None:
    """Phases of which none says what follows, follow each other."""
    for node, after in pairwise(nodes):
        node.edges.append(TreeEdge(after.key, node.key_at, node.fields, None))
