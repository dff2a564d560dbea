"""Every key of Alphred's files, with what becomes of it. An optional key may be null."""

from __future__ import annotations

from mulligan.formats.value_schemas import ANY_TEXT, optional
from mulligan.language.keys.action_keys import as_node
from mulligan.language.keys.value_schemas import (
    FLAG,
    STEP_NAME,
    TEXT,
    Choice,
    Json,
    Key,
    ListOf,
    Record,
    number,
    whole,
)

MAX_CHILDREN_DEFAULT = 12
HANDLER_INPUT_CHARS_DEFAULT = 8_000
OPERATORS = ("==", "!=", ">", "<", ">=", "<=")


_COORDINATE = number(-1e9, 1e9)

POSITION = Record(
    "position",
    {
        "x": Key(_COORDINATE, "where the editor draws the node: no effect on a run"),
        "y": Key(_COORDINATE, "where the editor draws the node: no effect on a run"),
    },
)
PROMPT = Record(
    "promptTemplate",
    {
        "content": Key(ANY_TEXT, "the prompt of the agent", is_required=True),
        "contentType": optional(Choice(("text", "markdown")), "how the editor shows it: no effect on a run"),
    },
)
PERMISSIONS = Record(
    "executionPermissions",
    {
        "approvalPolicy": optional(
            Choice(("never", "on-request", "on-failure", "untrusted")), "ALPHRED_APPROVAL_POLICY in its environment"
        ),
        "sandboxMode": optional(
            Choice(("read-only", "workspace-write", "danger-full-access")), "ALPHRED_SANDBOX_MODE in its environment"
        ),
        "networkAccessEnabled": optional(FLAG, "ALPHRED_NETWORK_ACCESS in its environment: true or false"),
        "additionalDirectories": optional(
            ListOf(TEXT), "ALPHRED_ADDITIONAL_DIRECTORIES in its environment, one per line"
        ),
        "webSearchMode": optional(Choice(("disabled", "cached", "live")), "ALPHRED_WEB_SEARCH_MODE in its environment"),
    },
)
ERROR_HANDLER = Record(
    "error_handler_config",
    {
        "mode": Key(Choice(("default", "disabled", "custom")), "whether a failure is summarized before a retry"),
        "prompt": optional(TEXT, "custom: the prompt of the summarizing agent"),
        "model": optional(TEXT, "custom: its model"),
        "provider": optional(STEP_NAME, "custom: its provider (default: that of the node)"),
        "maxInputChars": optional(
            whole(1), f"custom: the limit of its input, in characters (default {HANDLER_INPUT_CHARS_DEFAULT})"
        ),
    },
)
NODE = Record(
    "node",
    {
        "nodeKey": Key(TEXT, "the name of the step", is_required=True),
        "displayName": optional(ANY_TEXT, "the step's description"),
        "nodeType": optional(Choice(("agent", "human", "tool")), "agent: an agent; human: approve; tool: refused"),
        "nodeRole": optional(Choice(("standard", "spawner", "join")), "spawner: its answer is a list of subtasks"),
        "maxChildren": optional(whole(0), f"spawner: how many subtasks at most (default {MAX_CHILDREN_DEFAULT})"),
        "provider": optional(STEP_NAME, "the agent's provider"),
        "model": optional(TEXT, "the agent's model (default: the provider's own)"),
        "executionPermissions": optional(PERMISSIONS, "variables for the provider's command, which decides"),
        "reportArtifactContentType": optional(
            Choice(("text", "markdown", "json", "diff")), "json: the answer must be JSON; otherwise no effect"
        ),
        "maxRetries": optional(whole(0, 1_000_000), "retries after the first attempt, in each visit"),
        "sequenceIndex": optional(whole(-1_000_000, 1_000_000_000), "the position of the step in the file"),
        "position": optional(POSITION, "where the editor draws it: no effect on a run"),
        "promptTemplate": optional(PROMPT, "the prompt"),
        "error_handler_config": optional(ERROR_HANDLER, "how a failure is summarized before a retry (default: it is)"),
    },
)
CONDITION = Record(
    "condition",
    {
        "field": Key(TEXT, "'decision', or a field of the answer", is_required=True),
        "operator": Key(Choice(OPERATORS), "a comparison; ordering is for numbers", is_required=True),
        "value": Key(Json(), "the value to compare with", is_required=True),
    },
)
CONDITIONS = Record(
    "conditions",
    {
        "logic": Key(Choice(("and", "or")), "whether all must be true, or one", is_required=True),
        "conditions": Key(as_node(ListOf(CONDITION, at_least=1)), "guards of either kind", is_required=True),
    },
)
_ROUTE_KEYS = {
    "routeOn": optional(Choice(("success", "failure", "terminal")), "the edge's 'on' (default success)"),
    "priority": optional(whole(0), "the order of evaluation among the edges of its node: the lowest comes first"),
    "auto": optional(FLAG, "true: it has no condition"),
}
EDGE = Record(
    "edge",
    {
        "sourceNodeKey": Key(TEXT, "the step whose 'next' has the edge", is_required=True),
        "targetNodeKey": Key(TEXT, "the step it leads to", is_required=True),
        **_ROUTE_KEYS,
        "guardExpression": optional(as_node(CONDITION), "the edge's 'when'"),
        "edgeKind": optional(
            Choice(("tree", "dynamic_spawner_to_child", "dynamic_child_to_join")),
            "only 'tree' is allowed in a workflow",
        ),
    },
)
DRAFT = Record(
    "draft",
    {
        "treeKey": optional(TEXT, "the name of the workflow"),
        "version": optional(whole(0), "kept as a comment: our version is a hash of the workflow"),
        "status": optional(Choice(("draft", "published")), "kept as a comment: both run"),
        "draftRevision": optional(whole(0), "a comment"),
        "name": optional(ANY_TEXT, "the beginning of the description"),
        "description": optional(ANY_TEXT, "the description"),
        "versionNotes": optional(ANY_TEXT, "a comment"),
        "nodes": Key(ListOf(as_node(NODE), at_least=1), "the steps", is_required=True),
        "edges": optional(ListOf(as_node(EDGE)), "the 'next' of the steps"),
        "initialRunnableNodeKeys": optional(ListOf(TEXT), "checked: steps without incoming edges start"),
    },
)
TRANSITION = Record(
    "transition",
    {
        "target": Key(TEXT, "the step it leads to", is_required=True),
        **_ROUTE_KEYS,
        "when": optional(as_node(CONDITION), "the edge's 'when'"),
    },
)
PHASE = Record(
    "phase",
    {
        "name": Key(TEXT, "the name of the step", is_required=True),
        "type": optional(Choice(("agent", "human", "tool")), "agent: an agent; human: approve; tool: refused"),
        "provider": optional(STEP_NAME, "the agent's provider"),
        "model": optional(TEXT, "the agent's model (default: the provider's own)"),
        "prompt": optional(ANY_TEXT, "the prompt of the agent"),
        "maxRetries": optional(whole(0, 1_000_000), "retries after the first attempt, in each visit"),
        "transitions": optional(ListOf(as_node(TRANSITION)), "the 'next' of the step"),
    },
)
PHASES = Record(
    "phases",
    {
        "name": optional(TEXT, "the name of the workflow"),
        "version": optional(Json(), "kept as a comment: our version is a hash of the workflow"),
        "phases": Key(ListOf(as_node(PHASE), at_least=1), "the steps", is_required=True),
    },
)
