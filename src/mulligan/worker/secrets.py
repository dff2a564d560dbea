"""Secrets: a task carries only where they are. This version does not look them up, and says so."""

from __future__ import annotations

from typing import Any

from ..core.tasks import Task
from ..errors import InputInvalid

_HOLE = "${}"


def refuse_secrets(task: Task) -> None:
    """InputInvalid if a value of the task holds a secret."""
    if task.secrets and any(map(_holds_secret, (task.params, task.env, task.cwd))):
        raise InputInvalid("it reads a secret, and this version cannot look secrets up yet")


def _holds_secret(value: Any) -> bool:
    if isinstance(value, dict):
        return _HOLE in value or any(map(_holds_secret, value.values()))
    return isinstance(value, list) and any(map(_holds_secret, value))
