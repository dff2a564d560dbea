"""What distinguishes an interpreter from others, and the version of its pip. Imported, or run by that interpreter.

An environment is built for one interpreter on one platform: after an update of either, another one is needed.
Standard library only, and nothing newer than the oldest Python that may run it.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig

# `typing` itself is not imported: a process that is about to start should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def identify() -> dict[str, Any]:
    """Return `interpreter`, a list that is different for another interpreter, and `pip`, "" if it has none."""
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError, OSError):
        libc = None
    try:
        import pip

        version = str(pip.__version__)
    except Exception:  # it may be missing or broken in any way
        version = ""
    base = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    known = [base, sys.version, sys.implementation.cache_tag, sysconfig.get_platform(), libc]
    return {"interpreter": known, "pip": version}


if __name__ == "__main__":
    print(json.dumps(identify()))
