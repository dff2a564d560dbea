"""Nodes as steps: an agent, an approval by a person, or the three steps of a spawner with its subtasks."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from typing import Any

from mulligan.core.model.failure import MESSAGE_CHARS_MAX
from mulligan.core.model.failure_context import head_tail
from mulligan.formats.alphred.keys import HANDLER_INPUT_CHARS_DEFAULT
from mulligan.formats.alphred.routes import JSON_CONTRACT, Routes, spawner_contract, translate_routes
from mulligan.formats.alphred.tree import Tree, TreeEdge, TreeNode
from mulligan.formats.expressions import step_path
from mulligan.formats.translation import Translation, literal, made, mapping, scalar
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Mapping, Node, Source

# -- retries ---------------------------------------------------------------------------------------------------------


SUMMARY_PROMPT = (
    "An agent has failed at its task, and will try again. Say what went wrong, what it had tried, and what it should "
    "do differently. Be brief: your answer is handed to it."
)
# Alphred's models for summaries; other providers use the model of the node.
_SUMMARY_MODELS = {"codex": "gpt-5-codex-mini", "claude": "claude-3-5-haiku-latest"}


def translate_retry(node: TreeNode, prompt: str = "") -> Node | None:
    """The `retry` of a node's step; None without retries. `prompt` replaces the prompt of the node for its subtasks."""
    retries = node.fields.get("maxRetries") or 0
    if not retries:
        return None
    config: Fields | None = node.fields.get("error_handler_config")
    mode = (config.get("mode") if config else None) or "default"
    rule: dict[str, Any] = {"max_retries": retries}
    if mode != "disabled":
        rule["recovery_script"] = {"agent": _summary_agent(node, config if mode == "custom" else None, prompt)}
    at: Node = node.fields.at("maxRetries")
    return made(rule if len(rule) > 1 else retries, at)


def _summary_agent(node: TreeNode, custom: Fields | None, prompt: str) -> dict[str, Any]:
    """The agent that summarizes a failure. It gets the failure and the prompt of the node, within its limits."""
    custom_value = custom.get if custom else (lambda key: None)
    provider = custom_value("provider") or node.fields.get("provider")
    model = custom_value("model") or _SUMMARY_MODELS.get(provider, node.fields.get("model"))
    room = max(0, (custom_value("maxInputChars") or HANDLER_INPUT_CHARS_DEFAULT) - MESSAGE_CHARS_MAX)
    shown = prompt or literal(head_tail(node.prompt, room)[0])
    return {
        "provider": provider,
        "model": literal(model) if model else None,
        "prompt": literal(custom_value("prompt") or SUMMARY_PROMPT),
        "context": {"node_key": literal(node.key), "node_prompt": shown} if shown else None,
        "upstream": False,
    }


# -- steps -----------------------------------------------------------------------------------------------------------


# Alphred's limit of steps per run, so that no loop ends earlier here than there.
VISITS_MAX = 1_000
# How often a remediation is visited that leads back to what failed. Alphred does not lead back at all.
REPAIR_VISITS_MAX = 3
_SUBTASKS_MODULE = "mulligan.formats.alphred.subtasks"
_SUBTASK = "subtask"

_PERMISSION_VARIABLES = {
    "approvalPolicy": "ALPHRED_APPROVAL_POLICY",
    "sandboxMode": "ALPHRED_SANDBOX_MODE",
    "networkAccessEnabled": "ALPHRED_NETWORK_ACCESS",
    "additionalDirectories": "ALPHRED_ADDITIONAL_DIRECTORIES",
    "webSearchMode": "ALPHRED_WEB_SEARCH_MODE",
}


class StepBuilder:
    """Builds the steps of a tree, in order.

    `revisited` are the nodes that a loop may visit again, `repairs` those that only failures lead to and that lead
    back to what failed.
    """

    def __init__(
        self, tree: Tree, starts: set[str], translation: Translation, *, revisited: set[str], repairs: set[str]
    ) -> None:
        self._tree = tree
        self._starts = starts
        self._revisited = revisited
        self._repairs = repairs
        self._translation = translation
        self._source: Source = translation.source
        # Of each spawner: the names of the map of its subtasks and of the step that summarizes them for the join.
        self._batches = {
            node.key: (tree.names.fit(f"{node.step}_subtasks"), tree.names.fit(f"{node.step}_summary"))
            for node in tree.nodes.values()
            if node.role == "spawner"
        }
        self._incoming = tree.incoming_edges()
        self._has_warned = False

    def build(self) -> list[Mapping]:
        found: list[Mapping] = []
        for node in self._tree.nodes.values():
            with self._source.noting:
                found += self._node_steps(node)
        return found

    def _node_steps(self, node: TreeNode) -> list[Mapping]:
        if node.kind == "tool":
            message = f"node '{node.key}' is a tool, which Alphred has not specified yet"
            hint = "make it an agent, or convert the file and use a shell, http or python step"
            key = "nodeType" if "nodeType" in node.fields else "type"
            raise self._source.refuse("tool", message, node.fields.at(key), hint=hint)
        self._check_role(node)
        if node.kind == "human":
            message = literal(node.prompt.strip() or node.title or node.key)
            return [self._step(node, {"approve": {"message": message}}, self._routes(node, is_json=False))]
        self._check_agent(node)
        return self._spawner_steps(node) if node.role == "spawner" else [self._agent_step(node)]

    def _check_role(self, node: TreeNode) -> None:
        if node.kind == "agent":
            return
        if node.role != "standard":
            message = f"node '{node.key}' is a {node.role}, which only an agent can be"
            raise self._source.refuse("role", message, node.fields.at("nodeRole"), hint="write 'standard'")
        if node.fields.get("executionPermissions") is not None:
            message = f"node '{node.key}' has executionPermissions, which only an agent can have"
            key = node.fields.key("executionPermissions")
            raise self._source.refuse("permissions", message, key, hint="remove them")

    def _check_agent(self, node: TreeNode) -> None:
        if not node.fields.get("provider") and not _was_refused(node, "provider"):
            message = f"node '{node.key}' has no provider, so its agent is not known"
            self._source.note(self._source.refuse("provider", message, node.key_at, hint='add "provider": "claude"'))
        if not node.prompt.strip() and not _was_refused(node, "promptTemplate"):
            message, hint = f"node '{node.key}' has no prompt", "write what the agent should do"
            self._source.note(self._source.refuse("prompt", message, node.prompt_at, hint=hint))

    # -- the kinds of steps

    def _agent_step(self, node: TreeNode) -> Mapping:
        is_json = node.fields.get("reportArtifactContentType") == "json"
        following = self._routes(node, is_json=is_json)
        asked = [node.prompt, JSON_CONTRACT if is_json else "", following.contract]
        agent = self._agent_action(node, asked, answer="json" if is_json else None, **self._join_context(node))
        return self._step(node, {"agent": agent, "retry": translate_retry(node), "env": self._env(node)}, following)

    def _spawner_steps(self, node: TreeNode) -> list[Mapping]:
        """The spawner, the map of its subtasks, and the step that summarizes them for the join."""
        self._check_spawner(node)
        subtasks, summary = self._batches[node.key]
        asked = [node.prompt, spawner_contract(node.max_children)]
        agent = self._agent_action(node, asked, answer="json", **self._join_context(node))
        keys = [literal(key) for key in self._tree.nodes]
        check = self._call(node, "check_answer", answer="${output.json}", most=node.max_children, taken=keys)
        step = {"agent": agent, "validate": check, "retry": translate_retry(node), "env": self._env(node)}
        return [
            self._step(node, step, self._routes(node, is_json=True)),
            self._subtasks_step(node, subtasks, summary),
            self._summary_step(node, subtasks, summary),
        ]

    def _subtasks_step(self, node: TreeNode, name: str, summary: str) -> Mapping:
        model = node.fields.get("model")
        own = {"provider": node.fields.get("provider"), "model": literal(model) if model else None}
        over = self._call(node, "list_subtasks", **self._batch_args(node), **own)
        child = {
            "provider": f"${{{_SUBTASK}.provider}}",
            "model": f"${{{_SUBTASK}.model}}",
            "prompt": f"${{{_SUBTASK}.prompt}}",
            # A subtask's prompt is complete. The spawner's answer has the prompts of its siblings.
            "upstream": False,
        }
        step = {
            "step": name,
            "map": {"over": over, "as": _SUBTASK, "max_parallel": 1, "on_item_failure": "collect"},
            "do": [{"agent": child, "retry": translate_retry(node, f"${{{_SUBTASK}.prompt}}"), "env": self._env(node)}],
            "max_visits": self._max_visits(node),
            "next": summary,
        }
        return mapping(step, node.fields.node)

    def _summary_step(self, node: TreeNode, subtasks: str, summary: str) -> Mapping:
        batch = {**self._batch_args(node), "outcome": f"${{{step_path(subtasks)}.output}}"}
        [join] = node.edges_on("success")
        step = {
            "step": summary,
            **self._call(node, "summarize_subtasks", **batch),
            "max_visits": self._max_visits(node),
            "next": scalar(self._tree.nodes[join.target].step, join.at),
        }
        return mapping(step, node.fields.node)

    def _check_spawner(self, node: TreeNode) -> None:
        edges = node.edges_on("success")
        if len(edges) != 1:
            message = f"spawner '{node.key}' has {len(edges)} success edges, expected one, to its join"
            at = edges[1].at if len(edges) > 1 else node.key_at
            raise self._source.refuse("spawner", message, at)
        target = self._tree.nodes[edges[0].target]
        if target.role != "join":
            message = f"spawner '{node.key}' leads to '{target.key}', which is not a join"
            raise self._source.refuse("spawner", message, edges[0].at, hint="""give that node "nodeRole": "join\"""")
        if edges[0].guard is not None:
            message = f"spawner '{node.key}' only answers with its subtasks, so a guard on its edge is never true"
            raise self._source.refuse("spawner", message, edges[0].guard, hint="""write "auto": true instead""")

    # -- their parts

    def _step(self, node: TreeNode, keys: Dict[str, Any], following: Routes) -> Mapping:
        head = {"step": scalar(node.step, node.key_at), "description": self._description(node)}
        tail = {"max_visits": self._max_visits(node), "start": True if node.key in self._starts else None}
        # The check of its answer takes precedence over the check of its decision.
        return mapping({**head, **keys, **{**following.keys, **keys}, **tail, "next": following.next}, node.fields.node)

    def _description(self, node: TreeNode) -> str | None:
        """The title or key of the node, if it differs from the step name."""
        if node.title and node.title != node.step:
            return node.title
        return node.key if node.key != node.step else None

    def _routes(self, node: TreeNode, *, is_json: bool) -> Routes:
        return translate_routes(node, lambda edge: self._target(node, edge), self._source, is_json=is_json)

    def _target(self, node: TreeNode, edge: TreeEdge) -> str:
        """The target of an edge: from a spawner, the map of its subtasks."""
        if node.role == "spawner" and edge.on == "success":
            return self._batches[node.key][0]
        return self._tree.nodes[edge.target].step

    def _agent_action(self, node: TreeNode, parts: list[str], **others: Any) -> Mapping:
        prompt = "\n\n".join(part.strip("\n") for part in parts if part)
        model = node.fields.get("model")
        entries = {
            "provider": node.fields.get("provider"),
            "model": scalar(literal(model), node.fields.at("model")) if model else None,
            "prompt": scalar(literal(prompt), node.prompt_at),
            **others,
        }
        return mapping(entries, node.fields.node)

    def _join_context(self, node: TreeNode) -> dict[str, Any]:
        """The context of a join: the summaries of the subtasks, instead of the outputs of the steps before it.

        A join that other nodes lead to as well gets the outputs of all of them.
        """
        before = [other for other, edge in self._incoming[node.key] if edge.on == "success"]
        if not before or any(other.role != "spawner" for other in before):
            return {}
        texts = [f"${{{step_path(self._batches[other.key][1])}.output}}" for other in before]
        return {"context": "\n\n".join(texts), "upstream": False}

    def _batch_args(self, node: TreeNode) -> dict[str, Any]:
        own = step_path(node.step)
        return {"answer": f"${{{own}.output.json}}", "spawner": literal(node.key), "visit": f"${{{own}.visits}}"}

    def _call(self, node: TreeNode, function: str, **args: Any) -> dict[str, Any]:
        return {"python": {"call": f"{_SUBTASKS_MODULE}:{function}"}, "args": made(args, node.fields.node)}

    def _max_visits(self, node: TreeNode) -> int | None:
        """Many visits for a node in a loop, few for a repair: a hopeless one must not be tried a thousand times."""
        if node.key in self._repairs:
            return REPAIR_VISITS_MAX
        is_remediation = self._incoming[node.key] and all(edge.on == "failure" for _, edge in self._incoming[node.key])
        return VISITS_MAX if node.key in self._revisited and not is_remediation else None

    def _env(self, node: TreeNode) -> Mapping | None:
        permissions: Fields | None = node.fields.get("executionPermissions")
        given = permissions.values if permissions else {}
        values = {name: _variable_value(given.get(key)) for key, name in _PERMISSION_VARIABLES.items()}
        if not any(values.values()):
            return None
        env = mapping(values, node.fields.at("executionPermissions"))
        if not self._has_warned:
            self._has_warned = True
            variable = f"MULLIGAN_AGENT_{(node.fields.get('provider') or '').upper().replace('-', '_')}"
            message = "executionPermissions become environment variables: the provider's command decides what the agent"
            hint = f"set {variable} to a command that reads $ALPHRED_SANDBOX_MODE and the other variables"
            key = node.fields.key("executionPermissions")
            self._translation.warn("permissions", f"{message} may do", key, hint=hint, above=env)
        return env


def _was_refused(node: TreeNode, key: str) -> bool:
    """Whether the key exists but its value was refused."""
    return key in node.fields.node.entries and key not in node.fields


def _variable_value(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return literal("\n".join(value)) if value else None
    return None if value is None else str(value)
