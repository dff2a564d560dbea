"""Torc's environment variables, and its names for logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mulligan.formats.torc.workflow import Torc

# What recovery scripts find beside what their job finds.
RECOVERY_ENV: dict[str, Any] = {}


def add(torc: Torc) -> None:
    """Give every step of the workflow what Torc gives a job."""
