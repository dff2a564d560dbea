"""Other systems' files into ours: Torc, Prodigy, NoETL, Alphred.

A reader translates the tree of a foreign file into the tree of one of ours, in which every node keeps the place it
came from. From there on it is a file like any other: the language checks it, and what it refuses is shown in the
foreign file. So what runs is what `convert` writes, and there is one meaning of everything.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mulligan.formats.loading import Converted, convert, examine, load
    from mulligan.formats.recognition import FORMATS, NOETL, OURS, checked
    from mulligan.language.loading import LoadResult

__all__ = ["FORMATS", "NOETL", "OURS", "Converted", "LoadResult", "checked", "convert", "examine", "load"]
_ELSEWHERE = {
    **dict.fromkeys(("Converted", "convert", "examine", "load"), "mulligan.formats.loading"),
    **dict.fromkeys(("FORMATS", "NOETL", "OURS", "checked"), "mulligan.formats.recognition"),
    "LoadResult": "mulligan.language.loading",
}


def __getattr__(name: str) -> Any:
    """What reads files, for who reads some: a worker that carries out a step of theirs loads no language."""
    if name in _ELSEWHERE:
        return getattr(__import__(_ELSEWHERE[name], fromlist=[name]), name)
    raise AttributeError(f"module 'mulligan.formats' has no attribute '{name}'")
