"""The same functions for commands of items that the file does not have, such as one that opens a worktree.

Their attempts are not counted among those of the item: see `is_added` in `core.model.workflow`.
"""

from typing import Any

from mulligan.formats.prodigy import runtime


def __getattr__(name: str) -> Any:
    return getattr(runtime, name)
