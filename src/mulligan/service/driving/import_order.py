"""Imports what drives a run, from the bottom up, so that no import is nested deep in others.

A module that is imported while another one is imported nests some ten calls of Python. Beyond 16 KiB of frames Python
3.11 maps memory for a call and unmaps it when the call returns: where the end of the 16 KiB happened to be in `yaml`, a
command did that 1,600 times, which took it 5 % longer.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module

from mulligan.core.model.text.lazy_regex import lazy_regex

_MODULES = (
    "mulligan.core.turn",
    "mulligan.ports",
    "mulligan.language",
    "mulligan.engine.engine",
    "mulligan.worker.local_executor",
    "mulligan.service.driving.driver",
)


def import_in_order() -> None:
    """Import them all; only for a process that has a single thread and will drive a run."""
    _import_yaml()
    for name in _MODULES:
        import_module(name)


def _import_yaml() -> None:
    """Import yaml without compiling its regular expressions: its parser in C reads our files, and uses none of them."""
    if "yaml" in sys.modules:
        return
    compile_now = re.compile
    re.compile = lazy_regex  # type: ignore[assignment]
    try:
        import_module("yaml")
    finally:
        re.compile = compile_now
