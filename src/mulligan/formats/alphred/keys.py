"""Every key of Alphred's files, once: what may stand there, and what becomes of it. An optional key may be null."""

from __future__ import annotations

from typing import Any

from mulligan.language.action_keys import as_node
from mulligan.language.nodes import Node, Scalar, Source
from mulligan.language.shapes import (
    FLAG,
    STEP_NAME,
    TEXT,
    Choice,
    Definitions,
    Json,
    Key,
    ListOf,
    Record,
    Schema,
    Shape,
    Value,
    number,
    whole,
)

MAX_CHILDREN_DEFAULT = 12
HANDLER_INPUT_CHARS_DEFAULT = 8_000
OPERATORS = ("==", "!=", ">", "<", ">=", "<=")


class OrNull(Shape, frozen=True):
    """What it is of, or null, which says as much as nothing."""

    of: Shape

    @property
    def expected(self) -> str:
        return self.of.expected

    def read(self, node: Node, label: str, source: Source) -> Any:
        is_null = isinstance(node, Scalar) and node.value is None
        return None if is_null else self.of.read(node, label, source)

    def schema(self, definitions: Definitions) -> Schema:
        return {"anyOf": [self.of.schema(definitions), {"type": "null"}]}


def _maybe(shape: Shape, about: str) -> Key:
    return Key(OrNull(shape), about)


def _some_text(value: Any) -> str:
    """A text that may be empty: what a form sends for a field that nobody filled in."""
    if not isinstance(value, str):
        raise ValueError(value)
    return value


ANY_TEXT = Value("a text", _some_text, {"type": "string"})
_COORDINATE = number(-1e9, 1e9)

POSITION = Record(
    "position",
    {
        "x": Key(_COORDINATE, "where the editor draws the node: no part of a run"),
        "y": Key(_COORDINATE, "where the editor draws the node: no part of a run"),
    },
)
PROMPT = Record(
    "promptTemplate",
    {
        "content": Key(ANY_TEXT, "the prompt of the agent", is_required=True),
        "contentType": _maybe(Choice(("text", "markdown")), "how the editor shows it: agents read both"),
    },
)
PERMISSIONS = Record(
    "executionPermissions",
    {
        "approvalPolicy": _maybe(
            Choice(("never", "on-request", "on-failure", "untrusted")), "ALPHRED_APPROVAL_POLICY in its environment"
        ),
        "sandboxMode": _maybe(
            Choice(("read-only", "workspace-write", "danger-full-access")), "ALPHRED_SANDBOX_MODE in its environment"
        ),
        "networkAccessEnabled": _maybe(FLAG, "ALPHRED_NETWORK_ACCESS in its environment: true or false"),
        "additionalDirectories": _maybe(
            ListOf(TEXT), "ALPHRED_ADDITIONAL_DIRECTORIES in its environment, one per line"
        ),
        "webSearchMode": _maybe(Choice(("disabled", "cached", "live")), "ALPHRED_WEB_SEARCH_MODE in its environment"),
    },
)
ERROR_HANDLER = Record(
    "error_handler_config",
    {
        "mode": Key(Choice(("default", "disabled", "custom")), "whether a failure is summed up before a retry"),
        "prompt": _maybe(TEXT, "custom: what the summing agent is asked"),
        "model": _maybe(TEXT, "custom: its model"),
        "provider": _maybe(STEP_NAME, "custom: its provider (default: that of the node)"),
        "maxInputChars": _maybe(
            whole(1), f"custom: how much it is told, in characters (default {HANDLER_INPUT_CHARS_DEFAULT})"
        ),
    },
)
NODE = Record(
    "node",
    {
        "nodeKey": Key(TEXT, "the name of the step", is_required=True),
        "displayName": _maybe(ANY_TEXT, "the step's description"),
        "nodeType": _maybe(Choice(("agent", "human", "tool")), "agent: an agent; human: approve; tool: refused"),
        "nodeRole": _maybe(Choice(("standard", "spawner", "join")), "spawner: its answer is a list of subtasks"),
        "maxChildren": _maybe(whole(0), f"spawner: how many subtasks at most (default {MAX_CHILDREN_DEFAULT})"),
        "provider": _maybe(STEP_NAME, "the agent's provider"),
        "model": _maybe(TEXT, "the agent's model (default: the provider's own)"),
        "executionPermissions": _maybe(PERMISSIONS, "variables for the provider's command, which decides"),
        "reportArtifactContentType": _maybe(
            Choice(("text", "markdown", "json", "diff")), "json: the answer has to be JSON; else no difference"
        ),
        "maxRetries": _maybe(whole(0, 1_000_000), "retries after the first attempt, in each visit"),
        "sequenceIndex": _maybe(whole(-1_000_000, 1_000_000_000), "the place of the step in the file"),
        "position": _maybe(POSITION, "where the editor draws it: no part of a run"),
        "promptTemplate": _maybe(PROMPT, "the prompt"),
        "error_handler_config": _maybe(
            ERROR_HANDLER, "who sums up a failure before a retry (default: it is summed up)"
        ),
    },
)
CONDITION = Record(
    "condition",
    {
        "field": Key(TEXT, "'decision', or a field of the answer", is_required=True),
        "operator": Key(Choice(OPERATORS), "a comparison; an order is one of numbers", is_required=True),
        "value": Key(Json(), "what it is compared with", is_required=True),
    },
)
CONDITIONS = Record(
    "conditions",
    {
        "logic": Key(Choice(("and", "or")), "whether all have to hold, or one", is_required=True),
        "conditions": Key(as_node(ListOf(CONDITION, at_least=1)), "guards of either kind", is_required=True),
    },
)
_ROUTE_KEYS = {
    "routeOn": _maybe(Choice(("success", "failure", "terminal")), "the edge's 'on' (default success)"),
    "priority": _maybe(whole(0), "the place of the edge among those of its node: the lowest comes first"),
    "auto": _maybe(FLAG, "true: it has no condition"),
}
EDGE = Record(
    "edge",
    {
        "sourceNodeKey": Key(TEXT, "the step whose 'next' has the edge", is_required=True),
        "targetNodeKey": Key(TEXT, "the step it leads to", is_required=True),
        **_ROUTE_KEYS,
        "guardExpression": _maybe(as_node(CONDITION), "the edge's 'when'"),
        "edgeKind": _maybe(
            Choice(("tree", "dynamic_spawner_to_child", "dynamic_child_to_join")), "only 'tree' is of a workflow"
        ),
    },
)
DRAFT = Record(
    "draft",
    {
        "treeKey": _maybe(TEXT, "the name of the workflow"),
        "version": _maybe(whole(0), "a comment: a version of ours is the hash of what it says"),
        "status": _maybe(Choice(("draft", "published")), "a comment: both run"),
        "draftRevision": _maybe(whole(0), "a comment"),
        "name": _maybe(ANY_TEXT, "the beginning of the description"),
        "description": _maybe(ANY_TEXT, "the description"),
        "versionNotes": _maybe(ANY_TEXT, "a comment"),
        "nodes": Key(ListOf(as_node(NODE), at_least=1), "the steps", is_required=True),
        "edges": _maybe(ListOf(as_node(EDGE)), "the 'next' of the steps"),
        "initialRunnableNodeKeys": _maybe(ListOf(TEXT), "checked: a step that no edge leads to starts"),
    },
)
TRANSITION = Record(
    "transition",
    {
        "target": Key(TEXT, "the step it leads to", is_required=True),
        **_ROUTE_KEYS,
        "when": _maybe(as_node(CONDITION), "the edge's 'when'"),
    },
)
PHASE = Record(
    "phase",
    {
        "name": Key(TEXT, "the name of the step", is_required=True),
        "type": _maybe(Choice(("agent", "human", "tool")), "agent: an agent; human: approve; tool: refused"),
        "provider": _maybe(STEP_NAME, "the agent's provider"),
        "model": _maybe(TEXT, "the agent's model (default: the provider's own)"),
        "prompt": _maybe(ANY_TEXT, "the prompt of the agent"),
        "maxRetries": _maybe(whole(0, 1_000_000), "retries after the first attempt, in each visit"),
        "transitions": _maybe(ListOf(as_node(TRANSITION)), "the 'next' of the step"),
    },
)
PHASES = Record(
    "phases",
    {
        "name": _maybe(TEXT, "the name of the workflow"),
        "version": _maybe(Json(), "a comment: a version of ours is the hash of what it says"),
        "phases": Key(ListOf(as_node(PHASE), at_least=1), "the steps", is_required=True),
    },
)
RECORDS = (
    *(DRAFT, NODE, POSITION, PROMPT, PERMISSIONS, ERROR_HANDLER, EDGE, CONDITION, CONDITIONS),
    *(PHASES, PHASE, TRANSITION),
)
