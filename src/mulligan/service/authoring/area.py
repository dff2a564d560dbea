"""Workflow files and texts, as `Service.workflows` gives them: read, checked, drawn, covered, tried on runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mulligan.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from mulligan.analysis.coverage.explore import CaseStory
    from mulligan.analysis.coverage.results import Coverage, Times
    from mulligan.analysis.whatif.results import WhatIf
    from mulligan.core.model.event_types import Kept
    from mulligan.core.model.workflow import Workflow
    from mulligan.formats import Converted, Examined
    from mulligan.service.authoring.coverage_page import CoveragePage
    from mulligan.service.authoring.handler_trial import HandlerTrial
    from mulligan.service.authoring.step_trial import Fakes
    from mulligan.service.authoring.suggest import DraftedChanges, SuggestedChange, Suggestions, WrittenChanges
    from mulligan.service.authoring.whatif import WhatIfSelection
    from mulligan.service.authoring.workflow_files import Validation
    from mulligan.service.rendering.drawing import Picture
    from mulligan.service.runs.stored.run_reader import RunReader
    from mulligan.service.server.catalogue.catalogue import Catalogue
    from mulligan.service.server.catalogue.texts import WorkflowText


class Workflows:
    """An area of `Service`, opened when it is first asked for."""

    def __init__(self, reader: RunReader, catalogue: Callable[[], Catalogue], by: Callable[[], str]) -> None:
        self._reader = reader
        self._catalogue = catalogue
        self._by = by

    @staticmethod
    def validate(
        path: Path, *, named: str | None = None, trust_templates: bool = False, catalogue: Path | None = None
    ) -> Validation:
        """Check a workflow file, of ours or of another system (`named`)."""
        from mulligan.service.authoring import workflow_files

        return workflow_files.validate(path, named=named, trust_templates=trust_templates, catalogue=catalogue)

    @staticmethod
    def load_workflow(path: str | Path, **how: Any) -> Workflow:
        """The workflow in a file, read as `examine_workflow` does. `LanguageError` where it is refused."""
        from mulligan import formats

        return formats.load(path, **how)

    @staticmethod
    def examine_workflow(
        path: str | Path,
        *,
        named: str | None = None,
        trust_templates: bool = False,
        catalogue: Path | None = None,
        given: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Examined:
        """The workflow in a file, and the warnings about it. `given` are the inputs that it will be run with.

        `options` are only for files of some systems.
        """
        from mulligan import formats

        return formats.examine(
            path, named=named, trust_templates=trust_templates, catalogue=catalogue, given=given, options=options
        )

    @staticmethod
    def convert_workflow(
        path: str | Path, *, named: str | None = None, trust_templates: bool = False, catalogue: Path | None = None
    ) -> Converted:
        """The text of another system's file as one of ours."""
        from mulligan import formats

        return formats.convert(path, named=named, trust_templates=trust_templates, catalogue=catalogue)

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
    def draw_for_page(
        workflow: Workflow,
        statuses: Mapping[str, str] | None = None,
        *,
        lines: Mapping[str, int] | None = None,
        nodes_max: int,
        is_expanded: bool = False,
    ) -> str:
        """The SVG of that picture in the colours of the dashboard; "" if it is too large. It is markup."""
        from mulligan.service.rendering import drawing

        return drawing.draw_page_svg(workflow, statuses, lines=lines, nodes_max=nodes_max, is_expanded=is_expanded)

    @staticmethod
    def picture(workflow: Workflow, statuses: Mapping[str, str] | None = None, *, is_expanded: bool = False) -> Picture:
        """The nodes and links of that picture."""
        from mulligan.service.rendering import drawing

        return drawing.choose_picture(workflow, statuses, is_expanded=is_expanded)

    @staticmethod
    def read_fakes(workflow: Workflow, words: Sequence[str] = (), file: Path | None = None) -> Fakes:
        """How faked steps end, as words such as `build=EXIT_NONZERO:11` and a file say."""
        from mulligan.service.authoring import step_trial

        return step_trial.read_fakes_given(workflow, words, file)

    @staticmethod
    def parse_inputs(data: bytes, file: str) -> dict[str, Any]:
        """The inputs in the text of a YAML or JSON file; errors name `file`. The workflow checks them later."""
        from mulligan.language.text import input_files

        return input_files.parse_inputs(data, file)

    @staticmethod
    def apply_fakes(workflow: Workflow, fakes: Fakes) -> Workflow:
        """The workflow with these steps faked."""
        from mulligan.service.authoring import step_trial

        return step_trial.apply_fakes(workflow, fakes)

    @staticmethod
    def isolate_step(workflow: Workflow, step: str) -> Workflow:
        """A workflow of one step alone, with stand-ins for the steps whose results it reads."""
        from mulligan.service.authoring import step_trial

        return step_trial.isolate_step(workflow, step)

    @staticmethod
    def step_results(
        workflow: Workflow, step: str, fakes: Fakes, words: Sequence[str], results: Mapping[str, Any]
    ) -> list[Kept]:
        """The results that an isolated step reads: faked ones, given ones, otherwise null."""
        from mulligan.service.authoring import step_trial

        return step_trial.step_results(workflow, step, fakes, words, results)

    @staticmethod
    def isolate_handler(workflow: Workflow, step: str) -> HandlerTrial:
        """The failure handler of a step alone."""
        from mulligan.service.authoring import handler_trial

        return handler_trial.isolate_handler(workflow, step)

    @staticmethod
    def isolate_item_handler(workflow: Workflow, step: str, item: Any, number: int | None = None) -> HandlerTrial:
        """The failure handler of a command of a map step alone, for one item."""
        from mulligan.service.authoring import handler_trial

        return handler_trial.isolate_item_handler(workflow, step, item, number)

    @staticmethod
    def coverage(
        file: str | Path, *, step: str = "", failure: str = "", seed: int = 0, pairs: bool = True, **how: Any
    ) -> Coverage:
        """What the workflow in a file does about each failure of each step. It is played in memory: nothing is run.

        With `step` and `failure` only those are played. `pairs`: also failures of two steps in one run. `how` are the
        arguments of `examine_workflow`, and `inputs`.
        """
        from mulligan.service.authoring import coverage

        played = coverage.read_file(file, **how)
        return played.cover(step=step, failure=failure, seed=seed, pairs=pairs)

    @staticmethod
    def coverage_story(file: str | Path, step: str, failure: str, times: Times = "always", **how: Any) -> CaseStory:
        """What happens if a step of the workflow in a file fails in that way, in the words of `explain`."""
        from mulligan.service.authoring import coverage

        return coverage.read_file(file, **how).story_of_case(step, failure, times)

    @staticmethod
    def coverage_page(file: str | Path, *, seed: int = 0, pairs: bool = True, **how: Any) -> CoveragePage:
        """The same as `coverage`, and as one HTML page that has the stories."""
        from mulligan.service.authoring import coverage, coverage_page

        played = coverage.read_file(file, **how)
        return coverage_page.make_page(played, str(file), seed=seed, pairs=pairs)

    @staticmethod
    def text_coverage(text: str, *, file: str = "workflow.yaml", format: str | None = None) -> Coverage:
        """What the workflow in a text does about each failure of each step. The work is bounded."""
        from mulligan.service.authoring import served_coverage

        return served_coverage.cover_text(served_coverage.WorkflowText(text, file, format))

    @staticmethod
    def text_coverage_story(
        text: str,
        step: str,
        failure: str,
        times: Times = "always",
        *,
        file: str = "workflow.yaml",
        format: str | None = None,
    ) -> CaseStory:
        """What happens if a step of the workflow in a text fails in that way, in the words of `explain`."""
        from mulligan.service.authoring import served_coverage

        given = served_coverage.WorkflowText(text, file, format)
        return served_coverage.story_in_text(given, step, failure, times)

    def published_coverage(self, name: str, version: int | None = None) -> Coverage:
        """The same of a version of a published workflow, the newest by default."""
        from mulligan.service.authoring import served_coverage

        return served_coverage.cover_text(self._published_text(name, version))

    def published_coverage_story(
        self, name: str, version: int | None, step: str, failure: str, times: Times = "always"
    ) -> CaseStory:
        """The same of a version of a published workflow."""
        from mulligan.service.authoring import served_coverage

        return served_coverage.story_in_text(self._published_text(name, version), step, failure, times)

    def _published_text(self, name: str, version: int | None) -> WorkflowText:

        found = self._catalogue().workflow(name, version)
        from mulligan.service.authoring import served_coverage

        return served_coverage.published_text(found.name, found.text or "", found.format)

    def whatif(self, workflow: Workflow, selection: WhatIfSelection | None = None) -> WhatIf:
        """What a changed workflow would have made of its recorded runs. Nothing is executed, and nothing written."""
        from mulligan.service.authoring import whatif

        return whatif.whatif(self._reader, workflow, selection)

    def whatif_of_text(
        self, text: str, selection: WhatIfSelection, *, file: str = "", format: str | None = None
    ) -> WhatIf:
        """The same for the text of a workflow that nobody has published."""
        from mulligan.service.authoring import whatif

        return whatif.whatif_of_text(self._reader, text, selection, file=file, format=format)

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

    @staticmethod
    def write_suggestions(path: Path, chosen: Sequence[SuggestedChange]) -> WrittenChanges:
        """Write proposals into a workflow file. What cannot be written in place is left out, and says why."""
        from mulligan.service.authoring import suggest

        return suggest.write_into_file(path, chosen)

    def draft_suggestions(
        self, workflow: str, chosen: Sequence[SuggestedChange], *, dry_run: bool = False
    ) -> DraftedChanges:
        """Write proposals into a draft of a published workflow. A draft of somebody else stays as it is."""
        from mulligan.service.authoring import suggest

        return suggest.write_into_draft(self._catalogue(), self._by(), workflow, chosen, dry_run=dry_run)

    @staticmethod
    def choose_suggestions(found: Suggestions, ids: Sequence[str]) -> list[SuggestedChange]:
        """The proposals with these ids; all of them without any."""
        from mulligan.service.authoring import suggest

        return suggest.choose(found, ids)

    def _published(self, name: str) -> Workflow | None:
        try:
            return self._catalogue().load(name)
        except NotFound:
            return None
