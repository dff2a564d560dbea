"""Workflow files and texts, as `Service.workflows` gives them: read, checked, drawn, covered, tried on runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mulligan.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from mulligan.analysis.whatif.results import WhatIf
    from mulligan.core.model.workflow import Workflow
    from mulligan.service.authoring.coverage import PlayedWorkflow
    from mulligan.service.authoring.program_coverage import RehearsedProgram
    from mulligan.service.authoring.served_coverage import PlayedText
    from mulligan.service.authoring.suggest import DraftedChanges, SuggestedChange, Suggestions
    from mulligan.service.authoring.whatif import WhatIfSelection
    from mulligan.service.runs.stored.run_reader import RunReader
    from mulligan.service.server.catalogue.catalogue import Catalogue


class Workflows:
    """An area of `Service`, opened when it is first asked for."""

    def __init__(self, reader: RunReader, catalogue: Callable[[], Catalogue], by: Callable[[], str]) -> None:
        self._reader = reader
        self._catalogue = catalogue
        self._by = by

    @staticmethod
    def load_workflow(path: str | Path, **how: Any) -> Workflow:
        """The workflow in a file, read as `formats.examine` does. `LanguageError` where it is refused."""
        from mulligan import formats

        return formats.load(path, **how)

    @staticmethod
    def schema_text() -> str:
        """The JSON Schema of workflow files."""
        from mulligan.language import schema

        return schema.schema_text()

    @staticmethod
    def draw(
        workflow: Workflow,
        form: Literal["mermaid", "svg"],
        statuses: Mapping[str, str] | None = None,
        *,
        is_expanded: bool = False,
    ) -> str:
        """A picture of a workflow; with statuses, of a run."""
        from mulligan.service.rendering import drawing

        draw = drawing.draw_mermaid if form == "mermaid" else drawing.draw_svg
        return draw(workflow, statuses, is_expanded=is_expanded)

    @staticmethod
    def draw_for_notebook(workflow: Workflow, statuses: Mapping[str, str] | None = None, *, nodes_max: int) -> str:
        """The SVG of that picture in the colours of the notebook around it; "" if it is too large."""
        from mulligan.service.rendering import drawing

        return drawing.draw_embedded_svg(workflow, statuses, nodes_max=nodes_max)

    @staticmethod
    def parse_inputs(data: bytes, file: str) -> dict[str, Any]:
        """The inputs in the text of a YAML or JSON file; errors name `file`. The workflow checks them later."""
        from mulligan.language.text import input_files

        return input_files.parse_inputs(data, file)

    @staticmethod
    def play(file: str | Path, **how: Any) -> PlayedWorkflow:
        """The workflow in a file, ready to be played in memory: nothing is run. `how`: as for `coverage.read_file`."""
        from mulligan.service.authoring import coverage

        return coverage.read_file(file, **how)

    @staticmethod
    def rehearse(file: str | Path, fakes: Path, **how: Any) -> RehearsedProgram:
        """The program in a file, ready to be played with these fakes: its code runs, and none of its steps."""
        from mulligan.service.authoring import program_coverage

        return program_coverage.read_program(file, fakes, **how)

    @staticmethod
    def play_text(text: str, *, file: str = "workflow.yaml", format: str | None = None) -> PlayedText:
        """The same of a text that somebody sends. The work is bounded."""
        from mulligan.service.authoring import served_coverage
        from mulligan.service.server.catalogue import texts

        return served_coverage.PlayedText(texts.WorkflowText(text, file, format))

    def play_published(self, name: str, version: int | None = None) -> PlayedText:
        """The same of a version of a published workflow, the newest by default."""
        from mulligan.service.authoring import served_coverage

        return served_coverage.PlayedText(self._catalogue().text_of(name, version))

    def whatif(self, workflow: Workflow, selection: WhatIfSelection | None = None) -> WhatIf:
        """What a changed workflow would have made of its recorded runs. Nothing is executed, and nothing written."""
        from mulligan.service.authoring import whatif

        return whatif.whatif(self._reader, workflow, selection)

    def whatif_of_text(
        self, text: str, selection: WhatIfSelection, *, file: str = "", format: str | None = None
    ) -> WhatIf:
        """The same for a text that nobody has published. No other file is read for it, and it is no Python."""
        from mulligan.service.server.catalogue import texts

        read = texts.read_text(texts.WorkflowText(text, file or "workflow.yaml", format))
        return self.whatif(read.workflow, selection)

    def suggest(
        self, workflow: str = "", *, policy: Workflow | None = None, since: datetime | None = None, step: str = ""
    ) -> Suggestions:
        """What the runs of a workflow, or of all, say about its rules and limits; as proposals with their evidence.

        `policy` is the workflow as a file has it now; by default the published version, or that of the newest run.
        """
        from mulligan.service.authoring import suggest

        return suggest.suggest(
            self._reader, named=workflow, policy=policy, published=self._published, since=since, step=step
        )

    def draft_suggestions(
        self, workflow: str, chosen: Sequence[SuggestedChange], *, dry_run: bool = False
    ) -> DraftedChanges:
        """Write proposals into a draft of a published workflow. A draft of somebody else stays as it is."""
        from mulligan.service.authoring import suggest

        return suggest.write_into_draft(self._catalogue(), self._by(), workflow, chosen, dry_run=dry_run)

    def _published(self, name: str) -> Workflow | None:
        try:
            return self._catalogue().load(name)
        except NotFound:
            return None
