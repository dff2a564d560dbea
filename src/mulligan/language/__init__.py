"""The language: YAML or Python into one checked `core.workflow.Workflow`."""

from mulligan.language.inputs import check_inputs, check_recorded_inputs, refuse_references
from mulligan.language.loading import LoadResult, examine, lint, load, load_text

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
