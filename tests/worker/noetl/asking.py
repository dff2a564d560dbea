"""A NoETL step, asked as a worker's child asks it: its envelope, or what it reports."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mulligan import StepError
from mulligan.formats.noetl.runtime import run
from mulligan.worker.child.json_encoding import encode_plain


def envelope(**said: Any) -> dict[str, Any]:
    """What the step gives, as the engine will see it."""
    found: dict[str, Any] = json.loads(encode_plain(run(**said)) or "")
    return found


def result(**said: Any) -> Any:
    return envelope(**said)["result"]


def following(**said: Any) -> list[str]:
    found: list[str] = envelope(**said)["next"]
    return found


def reported(**said: Any) -> dict[str, Any]:
    """What a step that fails reports."""
    with pytest.raises(StepError) as error:
        run(**said)
    report: dict[str, Any] = error.value.report()
    return report


def seen(result: Any = None, **ctx: list[Any]) -> dict[str, Any]:
    """The envelope of a step before; `ctx__x` is what it set as `ctx.x`."""
    entries = {key.replace("__", ".", 1): entry for key, entry in ctx.items()}
    return {"result": result, "ctx": entries, "next": [], "status": "ok"}


def python(code: str, **keys: Any) -> dict[str, Any]:
    return {"kind": "python", "code": code, **keys}


def ruled(tool: dict[str, Any], *rules: dict[str, Any]) -> dict[str, Any]:
    return {**tool, "spec": {"policy": {"rules": list(rules)}}}


def when(condition: str, do: str, **then: Any) -> dict[str, Any]:
    return {"when": condition, "then": {"do": do, **then}}
