"""Run one step of a NoETL playbook: its templates, its tool or pipeline, its policies, its routes.

Runs in a warm child of a worker, the only process that loads Jinja2. A playbook may hold code, so children are not
shared between workflows, as with any plugin. Steps without code have children of their own, which may keep connections.
"""

from mulligan import StepError

try:
    from mulligan.formats.noetl.runtime.step import run, run_without_code
except ModuleNotFoundError as error:
    if error.name != "jinja2":
        raise
    message = "NoETL steps need Jinja2, which this worker does not have: pip install 'mulligan[noetl]'"
    raise StepError("INPUT_INVALID", message, retryable=False) from None

__all__ = ["run", "run_without_code"]
