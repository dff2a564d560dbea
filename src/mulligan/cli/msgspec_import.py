"""Import msgspec without `typing_extensions`; to be imported before anything that imports msgspec.

msgspec takes three names from `typing_extensions` if it is installed, and from `typing` otherwise. On the Pythons that
we support they are the same, but `typing_extensions` takes 12 ms to load, which each command would wait for (ADR 34).
"""

from __future__ import annotations

import sys
from importlib import import_module

_SKIPPED = "typing_extensions"

if _SKIPPED not in sys.modules and "msgspec" not in sys.modules:
    # An import of a module that stands as None here fails as if it were not installed.
    sys.modules[_SKIPPED] = None  # type: ignore[assignment]
    try:
        import_module("msgspec")
    finally:
        del sys.modules[_SKIPPED]
