"""Reads `cache`: whether a step may reuse the result of an earlier run."""

from __future__ import annotations

from typing import Any

from mulligan.core.model.actions import TABLE
from mulligan.core.state.scope import reads_secrets
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.scope import Scope, read_template
from mulligan.language.text.nodes import Mapping

# What stands for an action that has no result to keep, and why not.
_NEVER = {kind: one.why_not_cached for kind, one in TABLE.items() if one.why_not_cached}
_NEVER["group"] = _NEVER["workflow"]
_INSTEAD = {"workflow": "set 'cache' on the steps of that workflow", "group": "set 'cache' on the steps of the group"}


def read_cache(fields: Fields, scope: Scope) -> dict[str, Any]:
    """The fields for `cache`. A step that no worker runs cannot be cached."""
    cache = fields["cache"]
    if cache is False:
        return {"cache": False}
    stray = next((word for word in _NEVER if word in fields.node.entries), None)
    if stray is not None:
        message = f"'{stray}' cannot be cached: {_NEVER[stray]}"
        raise scope.source.refuse("stray_key", message, fields.key("cache"), hint=_INSTEAD.get(stray, "remove it"))
    agent = fields.node.get("agent")
    if isinstance(agent, Mapping) and ("tools" in agent.entries or "session" in agent.entries):
        message = "an agent with tools or a session cannot be cached: what it does depends on more than its inputs"
        raise scope.source.refuse("stray_key", message, fields.key("cache"), hint="remove it")
    if cache is True or "key" not in cache:
        return {"cache": True}  # without a key it is already refused
    key = read_template(cache["key"], scope)
    if reads_secrets(key):
        message = "a cache key cannot contain a secret: only workers know secrets, and the engine computes the key"
        raise scope.source.refuse("secret", message, cache["key"], hint="use a value that changes when the secret does")
    return {"cache": True, "cache_key": key}
