"""Workflows that an engine has read: runs of one version share one workflow and one graph."""

from __future__ import annotations

import hashlib

from mulligan.core.model.clusters.slurm_profile import profile_labels
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Workflow, decode
from mulligan.errors import CodecError

# A worker may run for months, and every change of a file makes a version. A run keeps its own workflow.
VERSIONS_KEPT_MAX = 500


class WorkflowCache:
    """Workflows and graphs by the whole hash of their definition: all projects share them, and nobody chooses it."""

    def __init__(self) -> None:
        self._workflows: dict[str, tuple[Workflow, Graph]] = {}
        # Whether any of them has a breaker: guarded tasks are leased from the store.
        self.has_breakers = False
        # What their own Slurm profiles offer: a machine without pilots has it too.
        self.profile_labels: tuple[str, ...] = ()

    def remember(self, data: bytes, workflow: Workflow) -> None:
        """Add a workflow that is already decoded."""
        self._add(hashlib.sha256(data).hexdigest(), workflow)

    def _add(self, digest: str, workflow: Workflow) -> None:
        if digest not in self._workflows and len(self._workflows) >= VERSIONS_KEPT_MAX:
            del self._workflows[next(iter(self._workflows))]
        self._workflows[digest] = workflow, Graph(workflow)
        self.note_definition(workflow)

    def note_definition(self, workflow: Workflow) -> None:
        """Note the definition that a run uses: a corrected one is not in the cache."""
        if workflow.slurm:
            self.profile_labels = tuple(dict.fromkeys((*self.profile_labels, *profile_labels(workflow.slurm))))
        self.has_breakers = self.has_breakers or bool(workflow.breakers)

    def get(self, version: str, data: bytes) -> tuple[Workflow, Graph]:
        """The workflow in `data` and its graph. CodecError if it is of another version: then nothing of it is run."""
        digest = hashlib.sha256(data).hexdigest()
        if not digest.startswith(version):
            # One that cannot be read says so.
            decode(data)
            raise CodecError(
                f"its definition is not of version {version}",
                hint="somebody has stored another one under that version: start it again from its file",
            )
        if digest not in self._workflows:
            self._add(digest, decode(data))
        return self._workflows[digest]
