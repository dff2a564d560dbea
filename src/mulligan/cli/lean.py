"""msgspec without what it asks for and does not need: to be imported first.

It takes three names from `typing_extensions` where that is installed, and from `typing` elsewhere. On the Pythons that
we run on they are the same, and the first takes longer to load than all of our own core.
"""

from __future__ import annotations

import sys
from importlib import import_module

_UNNEEDED = "typing_extensions"

if _UNNEEDED not in sys.modules and "msgspec" not in sys.modules:
    sys.modules[_UNNEEDED] = None  # type: ignore[assignment]
    try:
        import_module("msgspec")
    finally:
        del sys.modules[_UNNEEDED]
