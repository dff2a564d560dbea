"""`cache`: whether a step may take over the result of an earlier run."""

from __future__ import annotations

from typing import Any

from mulligan.core.state.scope import reads_secrets
from mulligan.language.scope import Scope, read_template
from mulligan.language.shapes import Fields

# What people call the steps that no worker carries out, and why there is nothing to take over.
_NEVER = {
    "wait": "waiting has no result",
    "approve": "a person is asked each time",
    "workflow": "each of its steps is cached by itself",
    "group": "each of its steps is cached by itself",
}
_INSTEAD = {"workflow": "set 'cache' on the steps of that workflow", "group": "set 'cache' on the steps of the group"}


def read_cache(fields: Fields, scope: Scope) -> dict[str, Any]:
    """What a step says under `cache`. A step that no worker carries out has no result to take over."""
    said = fields["cache"]
    if said is False:
        return {"cache": False}
    stray = next((word for word in _NEVER if word in fields.node.entries), None)
    if stray is not None:
        message = f"'{stray}' cannot be cached: {_NEVER[stray]}"
        raise scope.source.refuse("stray_key", message, fields.key("cache"), hint=_INSTEAD.get(stray, "remove it"))
    if said is True or "key" not in said:
        return {"cache": True}  # without its key it is refused already
    key = read_template(said["key"], scope)
    if reads_secrets(key):
        message = "a cache key cannot contain a secret: only workers know secrets, and the engine computes the key"
        raise scope.source.refuse("secret", message, said["key"], hint="use a value that changes when the secret does")
    return {"cache": True, "cache_key": key}
