"""Import msgspec without modules that it does not need; to be imported before anything that imports msgspec.

msgspec takes three names from `typing_extensions` if it is installed, and from `typing` otherwise. On the Pythons that
we support they are the same, but `typing_extensions` takes 12 ms to load, which each command would wait for (ADR 34).
It imports `uuid`, which imports `platform` for the name of the system alone: 3 ms, most of them regular expressions.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType

_SKIPPED = "typing_extensions"


class _SystemName(ModuleType):
    """As much of `platform` as `uuid` uses when it is imported."""

    @staticmethod
    def system() -> str:
        return os.uname().sysname


if "platform" not in sys.modules and "uuid" not in sys.modules:
    sys.modules["platform"] = _SystemName("platform")
    try:
        import uuid  # noqa: F401
    finally:
        del sys.modules["platform"]

if _SKIPPED not in sys.modules and "msgspec" not in sys.modules:
    # An import of a module that stands as None here fails as if it were not installed.
    sys.modules[_SKIPPED] = None  # type: ignore[assignment]
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules[_SKIPPED]
