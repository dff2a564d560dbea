"""Actions: commands that run when something has happened to the workflow, or to some of its jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mulligan.formats.torc.workflow import Torc


def add(torc: Torc) -> None:
    """Make steps of the actions of the workflow."""
