"""The language: YAML or Python into one checked `core.workflow.Workflow`."""

from mulligan.language.inputs import check_inputs, check_recorded_inputs, refuse_references
from mulligan.language.loading import Examined, examine, lint, load, load_text

__all__ = [
    "Examined",
    "check_inputs",
    "check_recorded_inputs",
    "examine",
    "lint",
    "load",
    "load_text",
    "refuse_references",
]
