"""The language: YAML or Python into one checked `core.model.workflow.Workflow`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mulligan.language.checked_files import LoadResult
    from mulligan.language.input_values import check_inputs, check_recorded_inputs, refuse_references
    from mulligan.language.loading import examine, lint, load, load_text

__all__ = [
    "LoadResult",
    "check_inputs",
    "check_recorded_inputs",
    "examine",
    "lint",
    "load",
    "load_text",
    "refuse_references",
]
_MODULES = {
    "LoadResult": "mulligan.language.checked_files",
    **dict.fromkeys(("examine", "lint", "load", "load_text"), "mulligan.language.loading"),
    **dict.fromkeys(("check_inputs", "check_recorded_inputs", "refuse_references"), "mulligan.language.input_values"),
}


def __getattr__(name: str) -> Any:
    """Import on demand: an engine that evaluates expressions does not load what reads files."""
    if name in _MODULES:
        return getattr(__import__(_MODULES[name], fromlist=[name]), name)
    raise AttributeError(f"module 'mulligan.language' has no attribute '{name}'")
