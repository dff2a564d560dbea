"""The language: YAML or Python into one checked `core.workflow.Workflow`."""
