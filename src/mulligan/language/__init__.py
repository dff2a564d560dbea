"""The language: YAML or Python into one checked `core.workflow.Workflow`."""

from mulligan.language.inputs import check_inputs
from mulligan.language.loading import load, load_text

__all__ = ["check_inputs", "load", "load_text"]
