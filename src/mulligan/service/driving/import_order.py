"""Imports what drives a run, from the bottom up, so that no import is nested deep in others.

A module that is imported while another one is imported nests some ten calls of Python. Beyond 16 KiB of frames Python
3.11 maps memory for a call and unmaps it when the call returns. What reads files is not here: a workflow that was
checked before is not read again.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module

_MODULES = (
    "mulligan.core.turn",
    "mulligan.ports",
    "mulligan.engine.engine",
    "mulligan.worker.local_executor",
    "mulligan.service.driving.driver",
)
_SERVICE = os.path.dirname(os.path.dirname(__file__))
_ROOMS = ("authoring", "decisions", "logs", "rendering", "runs", "server")


def import_in_order() -> None:
    """Import them all; only for a process that has a single thread and will drive a run."""
    for name in _MODULES:
        import_module(name)


def import_for_threads() -> None:
    """Import what calls of a server use: threads that import the same modules at once would wait for each other."""
    from pkgutil import walk_packages

    for room in _ROOMS:
        for found in walk_packages([os.path.join(_SERVICE, room)], f"mulligan.service.{room}."):
            # What needs an extra that is not installed is not called either.
            with suppress(ImportError):
                import_module(found.name)
