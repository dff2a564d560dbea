"""`noetl`: one step of a NoETL playbook, whole: its templates, its tool or pipeline, its policies, its routes.

Runs in a warm child, the only one who loads Jinja2. The code in a playbook is its author's, so these children are kept
apart by workflow, as those of plugins are.
"""

from mulligan.worker.actions.noetl.step import run

__all__ = ["run"]
