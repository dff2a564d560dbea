"""Workflows that an engine has read: runs of one version share one workflow and one graph."""

from __future__ import annotations

from mulligan.core.model.graph import Graph
from mulligan.core.model.slurm_profile import profile_labels
from mulligan.core.model.workflow import Workflow, decode

# A worker may run for months, and every change of a file makes a version. A run keeps its own workflow.
VERSIONS_KEPT_MAX = 500


class WorkflowCache:
    """Workflows and graphs by version."""

    def __init__(self) -> None:
        self._workflows: dict[str, tuple[Workflow, Graph]] = {}
        # Whether any of them has a breaker: guarded tasks are leased from the store.
        self.has_breakers = False
        # What their own Slurm profiles offer: a machine without pilots has it too.
        self.profile_labels: tuple[str, ...] = ()

    def remember(self, version: str, workflow: Workflow) -> None:
        """Add a workflow that is already decoded."""
        if version not in self._workflows and len(self._workflows) >= VERSIONS_KEPT_MAX:
            del self._workflows[next(iter(self._workflows))]
        self._workflows[version] = workflow, Graph(workflow)
        self.note_definition(workflow)

    def note_definition(self, workflow: Workflow) -> None:
        """Note the definition that a run uses: a corrected one is not in the cache."""
        if workflow.slurm:
            self.profile_labels = tuple(dict.fromkeys((*self.profile_labels, *profile_labels(workflow.slurm))))
        self.has_breakers = self.has_breakers or bool(workflow.breakers)

    def get(self, version: str, data: bytes) -> tuple[Workflow, Graph]:
        """The workflow of this version and its graph; decode `data` if it is new."""
        if version not in self._workflows:
            self.remember(version, decode(data))
        return self._workflows[version]
