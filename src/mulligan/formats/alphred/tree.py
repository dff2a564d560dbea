"""A checked Alphred file: its nodes in order, each with the edges that leave it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from mulligan.formats.alphred.keys import DRAFT, EDGE, MAX_CHILDREN_DEFAULT, NODE, PHASE, PHASES, TRANSITION
from mulligan.formats.names import Names
from mulligan.language.keys.value_schemas import Fields, Record
from mulligan.language.text.nodes import Mapping, Node, Refusal, Source
from mulligan.language.text.suggestions import did_you_mean


@dataclass(slots=True)
class TreeEdge:
    """An edge. `at` is the node that a message about its target points to."""

    target: str
    at: Node
    fields: Fields
    guard: Node | None
    on: str = "success"
    priority: int | None = None


@dataclass(slots=True)
class TreeNode:
    """A node of either form of the file. `key_at` is the node of its key, `fields` everything that it says."""

    key: str
    key_at: Node
    fields: Fields
    kind: str
    prompt: str
    prompt_at: Node
    title: str = ""
    role: str = "standard"
    max_children: int = MAX_CHILDREN_DEFAULT
    # The name of its step.
    step: str = ""
    edges: list[TreeEdge] = field(default_factory=list)

    def edges_on(self, on: str) -> list[TreeEdge]:
        """Its edges for one outcome, in the order of evaluation; those without a priority come last."""
        found = [edge for edge in self.edges if edge.on == on]
        return sorted(found, key=lambda edge: (edge.priority is None, edge.priority or 0))


@dataclass(slots=True)
class Tree:
    """A whole file. Nodes by key, in the order in which Alphred runs them."""

    fields: Fields
    nodes: dict[str, TreeNode]
    names: Names

    def incoming_edges(self) -> dict[str, list[tuple[TreeNode, TreeEdge]]]:
        """The edges that lead to each node."""
        found: dict[str, list[tuple[TreeNode, TreeEdge]]] = {key: [] for key in self.nodes}
        for node in self.nodes.values():
            for edge in node.edges:
                found[edge.target].append((node, edge))
        return found


def read_tree(root: Node, source: Source) -> Tree:
    """Read a file, and note everything that is wrong with it."""
    is_old = isinstance(root, Mapping) and "phases" in root.entries and "nodes" not in root.entries
    tree = _read_phases(root, source) if is_old else _read_draft(root, source)
    for node in tree.nodes.values():
        for edge in node.edges:
            if edge.target not in tree.nodes:
                source.note(_unknown_node(edge.target, edge.at, tree, source))
        node.edges = [edge for edge in node.edges if edge.target in tree.nodes]
    for node in tree.nodes.values():
        _note_equal_priorities(node, source)
    return tree


# -- the draft -------------------------------------------------------------------------------------------------------


def _read_draft(root: Node, source: Source) -> Tree:
    fields: Fields = DRAFT.read(root, "the workflow", source)
    read = [_read_node(entry) for entry in _read_records(fields, "nodes", NODE, "a node", source)]
    _note_equal_indexes(read, source)
    tree = _build_tree(fields, sorted(read, key=_sort_key), source)
    for entry in _read_records(fields, "edges", EDGE, "an edge", source):
        with source.noting:
            _add_edge(tree, entry, source)
    return tree


# The lists whose entries others refer to, and the key of the name.
_NAMES = {"nodes": "nodeKey", "phases": "name"}


def _read_records(fields: Fields, key: str, record: Record, label: str, source: Source) -> list[Fields]:
    """The entries of a list that have all required keys; missing keys of others were noted."""
    found: list[Fields] = []
    for entry in fields.get(key) or ():
        form = None
        with source.noting:
            form = record.read(entry, label, source)
        if form is not None and all(word in form for word in record.required):
            found.append(form)
        elif key in _NAMES:
            source.note_unread(entry, _NAMES[key])
    return found


def _read_node(fields: Fields) -> TreeNode:
    template, most = fields.get("promptTemplate"), fields.get("maxChildren")
    return TreeNode(
        key=fields["nodeKey"],
        key_at=fields.at("nodeKey"),
        fields=fields,
        kind=fields.get("nodeType") or "agent",
        prompt=template.get("content", "") if template else "",
        prompt_at=template.at("content") if template and "content" in template else fields.node,
        title=fields.get("displayName") or "",
        role=fields.get("nodeRole") or "standard",
        max_children=MAX_CHILDREN_DEFAULT if most is None else most,
    )


def _sort_key(node: TreeNode) -> tuple[bool, int, str]:
    """The order in which Alphred chooses the next node. Nodes without an index come last, in file order."""
    index = node.fields.get("sequenceIndex")
    return index is None, index or 0, node.key if index is not None else ""


def _note_equal_indexes(nodes: list[TreeNode], source: Source) -> None:
    first: dict[int, TreeNode] = {}
    for node in nodes:
        index = node.fields.get("sequenceIndex")
        other = first.setdefault(index, node) if index is not None else node
        if other is not node:
            message = f"nodes '{other.key}' and '{node.key}' have the same sequenceIndex {index}"
            hint = "give each node its own index: it decides which runs first"
            source.note(source.refuse("sequence_index", message, node.fields.at("sequenceIndex"), hint=hint))


def _build_tree(fields: Fields, nodes: list[TreeNode], source: Source) -> Tree:
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


def _add_edge(tree: Tree, entry: Fields, source: Source) -> None:
    if (entry.get("edgeKind") or "tree") != "tree":
        message = f"an edge of the kind '{entry['edgeKind']}' is created during a run and is not part of a workflow"
        raise source.refuse("edge", message, entry.at("edgeKind"), hint="remove it")
    owner = tree.nodes.get(entry["sourceNodeKey"])
    if owner is None:
        raise _unknown_node(entry["sourceNodeKey"], entry.at("sourceNodeKey"), tree, source)
    _append_edge(owner, entry, "targetNodeKey", "guardExpression", source)


def _append_edge(owner: TreeNode, entry: Fields, target: str, guard: str, source: Source) -> None:
    """Add an edge. Alphred's rules: a failure edge has no guard; any other edge has one unless it is 'auto'."""
    edge = TreeEdge(
        target=entry[target],
        at=entry.at(target),
        fields=entry,
        guard=entry.get(guard),
        on=entry.get("routeOn") or "success",
        priority=entry.get("priority"),
    )
    owner.edges.append(edge)
    is_auto, where = edge.fields.get("auto"), f"the edge from '{owner.key}' to '{edge.target}'"
    if edge.on == "terminal":
        message = f"{where} has the route 'terminal', which is only for edges that a spawner creates"
        raise source.refuse("edge", message, edge.fields.at("routeOn"), hint="write 'success' or 'failure'")
    if edge.on == "failure" and edge.guard is not None:
        message = f"{where} is taken on failure and has a guard, which is not supported"
        raise source.refuse("edge", message, edge.fields.key(guard), hint=f"remove '{guard}'")
    if edge.on == "failure" and is_auto is False:
        message = f"{where} is taken on failure and is not 'auto', but it cannot have a guard"
        raise source.refuse("edge", message, edge.fields.at("auto"), hint="write true, or remove it")
    if is_auto and edge.guard is not None:
        message = f"{where} is 'auto' and has a guard, but only one of them is allowed"
        raise source.refuse("edge", message, edge.fields.key(guard), hint="remove one of them")
    if edge.on == "success" and is_auto is False and edge.guard is None:
        message = f"{where} is not 'auto' and has no guard, so it would never be taken"
        raise source.refuse("edge", message, edge.fields.at("auto"), hint=f"add '{guard}', or write true")


def _unknown_node(key: str, at: Node, tree: Tree, source: Source) -> Refusal:
    return source.refuse_unknown(f"there is no node '{key}'", key, at, hint=did_you_mean(key, tree.nodes))


def _note_equal_priorities(node: TreeNode, source: Source) -> None:
    taken: set[tuple[str, int]] = set()
    for edge in node.edges:
        if edge.priority is None:
            continue
        if (edge.on, edge.priority) in taken:
            message = f"node '{node.key}' has two {edge.on} edges with the priority {edge.priority}"
            hint = "give each edge its own priority: it decides which is evaluated first"
            source.note(source.refuse("priority", message, edge.fields.at("priority"), hint=hint))
        taken.add((edge.on, edge.priority))


# -- phases, the older form ------------------------------------------------------------------------------------------


def _read_phases(root: Node, source: Source) -> Tree:
    fields: Fields = PHASES.read(root, "the workflow", source)
    tree = _build_tree(
        fields, [_read_phase(entry) for entry in _read_records(fields, "phases", PHASE, "a phase", source)], source
    )
    for node in tree.nodes.values():
        for entry in _read_records(node.fields, "transitions", TRANSITION, "a transition", source):
            with source.noting:
                _append_edge(node, entry, "target", "when", source)
    if not any("transitions" in node.fields for node in tree.nodes.values()):
        for node, after in pairwise(tree.nodes.values()):
            node.edges.append(TreeEdge(after.key, node.key_at, node.fields, None))
    return tree


def _read_phase(fields: Fields) -> TreeNode:
    return TreeNode(
        key=fields["name"],
        key_at=fields.at("name"),
        fields=fields,
        kind=fields.get("type") or "agent",
        prompt=fields.get("prompt") or "",
        prompt_at=fields.at("prompt") if "prompt" in fields else fields.node,
    )
