"""Other systems' files: translated into trees of ours, one package for each system. `table` lists them.

A reader translates the tree of a foreign file into the tree of one of ours, in which every node keeps the place it
came from. From there on it is a file like any other: the language checks it, and shows what it refuses in the foreign
file. So `convert` writes exactly what runs.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mulligan.formats.loading import (
        Converted,
        LocatedSteps,
        LocatedWorkflow,
        convert,
        examine_located,
        examine_text,
        examine_with_files,
    )
    from mulligan.formats.reading import examine, load
    from mulligan.formats.table import (
        FORMATS,
        NOETL,
        OURS,
        is_system,
        log_writer,
        options_of,
        systems_with_logs,
        title_of,
    )
    from mulligan.formats.translation import Translation, mapping, scalar
    from mulligan.language.checked_files import LoadResult
    from mulligan.language.python.python_files import as_python_file

__all__ = [
    "FORMATS",
    "NOETL",
    "OURS",
    "Converted",
    "LoadResult",
    "LocatedSteps",
    "LocatedWorkflow",
    "Translation",
    "as_python_file",
    "convert",
    "examine",
    "examine_located",
    "examine_text",
    "examine_with_files",
    "is_system",
    "load",
    "log_writer",
    "mapping",
    "options_of",
    "scalar",
    "systems_with_logs",
    "title_of",
]
_MODULES = {
    **dict.fromkeys(__all__, "mulligan.formats.loading"),
    **dict.fromkeys(
        ("FORMATS", "NOETL", "OURS", "is_system", "log_writer", "options_of", "systems_with_logs", "title_of"),
        "mulligan.formats.table",
    ),
    **dict.fromkeys(("Translation", "mapping", "scalar"), "mulligan.formats.translation"),
    **dict.fromkeys(("examine", "load"), "mulligan.formats.reading"),
    "LoadResult": "mulligan.language.checked_files",
    "as_python_file": "mulligan.language.python.python_files",
}


def __getattr__(name: str) -> Any:
    """Import on demand: a worker that runs a step of another system does not load what reads files."""
    if name in _MODULES:
        return getattr(__import__(_MODULES[name], fromlist=[name]), name)
    raise AttributeError(f"module 'mulligan.formats' has no attribute '{name}'")
