"""Workflows that an engine has met: runs of one version share one workflow and one graph."""

from __future__ import annotations

from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Workflow, decode


class Known:
    """By version: what was met once is not read again."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Workflow, Graph]] = {}
        # Whether any of them may have guarded tasks: those are leased from any store.
        self.has_breakers = False

    def remember(self, version: str, workflow: Workflow) -> None:
        """A workflow that is about to be run: it need not be read again."""
        self._found[version] = workflow, Graph(workflow)
        self.notice(workflow)

    def notice(self, workflow: Workflow) -> None:
        """A run goes by this definition, which may be a corrected one."""
        self.has_breakers = self.has_breakers or bool(workflow.breakers)

    def get(self, version: str, data: bytes) -> tuple[Workflow, Graph]:
        """The workflow of this version, which `data` holds, and its graph."""
        if version not in self._found:
            self.remember(version, decode(data))
        return self._found[version]
