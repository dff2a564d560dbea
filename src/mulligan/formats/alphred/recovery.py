"""Retries: as many more attempts as a node has, and before each an agent that sums up what went wrong."""

from __future__ import annotations

from typing import Any

from mulligan.core.model.failure import MESSAGE_CHARS_MAX
from mulligan.core.model.failure_context import head_tail
from mulligan.formats.alphred.keys import HANDLER_INPUT_CHARS_DEFAULT
from mulligan.formats.alphred.tree import TreeNode
from mulligan.formats.translation import literal, made
from mulligan.language.nodes import Node
from mulligan.language.shapes import Fields

PROMPT = (
    "An agent has failed at its task, and will try again. Say what went wrong, what it had tried, and what it should "
    "do differently. Be brief: your answer is handed to it."
)
# The models that Alphred asks where the node says nothing; of any other provider, that of the node.
_MODELS = {"codex": "gpt-5-codex-mini", "claude": "claude-3-5-haiku-latest"}


def retry(node: TreeNode, prompt: str = "") -> Node | None:
    """The `retry` of a node's step; None where it has no retries. `prompt`: what its subtasks are asked instead."""
    retries = node.fields.get("maxRetries") or 0
    if not retries:
        return None
    config: Fields | None = node.fields.get("error_handler_config")
    mode = (config.get("mode") if config else None) or "default"
    rule: dict[str, Any] = {"max_retries": retries}
    if mode != "disabled":
        rule["recovery_script"] = {"agent": _summing_up(node, config if mode == "custom" else None, prompt)}
    at: Node = node.fields.at("maxRetries")
    return made(rule if len(rule) > 1 else retries, at)


def _summing_up(node: TreeNode, custom: Fields | None, prompt: str) -> dict[str, Any]:
    """The agent that is told the failure, and the prompt of the node, within its bounds."""
    said = custom.get if custom else (lambda key: None)
    provider = said("provider") or node.fields.get("provider")
    model = said("model") or _MODELS.get(provider, node.fields.get("model"))
    room = max(0, (said("maxInputChars") or HANDLER_INPUT_CHARS_DEFAULT) - MESSAGE_CHARS_MAX)
    shown = prompt or literal(head_tail(node.prompt, room)[0])
    return {
        "provider": provider,
        "model": literal(model) if model else None,
        "prompt": literal(said("prompt") or PROMPT),
        "context": {"node_key": literal(node.key), "node_prompt": shown} if shown else None,
        "upstream": False,
    }
