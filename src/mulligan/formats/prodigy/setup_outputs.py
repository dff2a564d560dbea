"""What `capture_outputs` of a setup makes of the outputs of its commands, in a worker."""

from __future__ import annotations

import json
import re
from typing import Any

from mulligan import StepError
from mulligan.formats.prodigy.json_path import items_at

MAX_SIZE_DEFAULT = 1024 * 1024


def captured(outputs: dict[str, Any], rules: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Each variable by its rule, out of the output of its command. One that finds nothing takes its default."""
    return {name: _captured(name, outputs.get(name), rule) for name, rule in rules.items()}


def _captured(name: str, output: Any, rule: dict[str, Any]) -> Any:
    text = _cut(output if isinstance(output, str) else json.dumps(output), rule)
    found = None if output is None else _found(text, rule)
    if found is None and "default" in rule:
        return rule["default"]
    if found is None:
        message = f"nothing was found for '{name}' in what command {rule.get('command_index', 0)} printed"
        raise StepError("OUTPUT_INVALID", message, retryable=False)
    return _folded(found, rule.get("multiline", "preserve")) if isinstance(found, str) else found


def _cut(text: str, rule: dict[str, Any]) -> str:
    return text.encode()[: rule.get("max_size", MAX_SIZE_DEFAULT)].decode(errors="ignore")


def _found(text: str, rule: dict[str, Any]) -> Any:
    if "json_path" in rule:
        return _at_path(text, rule["json_path"])
    if "pattern" not in rule:
        return text
    match = re.search(rule["pattern"], text, re.M)
    if match is None:
        return None
    return match[1] if match.re.groups else match[0]


def _at_path(text: str, path: str) -> Any:
    """What the path leads to: one value by itself, several as a list."""
    try:
        found = items_at(path)(json.loads(text))
    except ValueError:
        return None
    return found[0] if len(found) == 1 else found or None


def _folded(text: str, multiline: str) -> Any:
    lines = text.splitlines()
    if multiline == "array":
        return lines
    if multiline == "join":
        return " ".join(lines)
    if multiline in ("first_line", "last_line"):
        return lines[0 if multiline == "first_line" else -1] if lines else ""
    return text
