"""The language: YAML or Python into one checked `core.model.workflow.Workflow`."""

from mulligan.language.loading import LoadResult, examine, lint, load, load_text
from mulligan.language.readers.inputs import check_inputs, check_recorded_inputs, refuse_references

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
