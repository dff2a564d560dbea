"""Imports the library that parses YAML without compiling its regular expressions, which takes longer than the rest."""

from __future__ import annotations

import _thread
import re
import sys

from mulligan.core.model.text.lazy_regex import lazy_regex


def import_yaml() -> None:
    """Import it; as always if another thread could notice. Its parser in C reads our files, and uses none of them."""
    if "yaml" in sys.modules or _thread._count():
        return
    compile_now = re.compile
    re.compile = lazy_regex  # type: ignore[assignment]
    try:
        import yaml  # noqa: F401
    finally:
        re.compile = compile_now
