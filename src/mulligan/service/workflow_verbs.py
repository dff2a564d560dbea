"""What a face can ask about workflows: no store is needed, and no run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from mulligan.core.model.event_types import Kept
    from mulligan.core.model.workflow import Workflow
    from mulligan.formats import Converted, Examined
    from mulligan.service.authoring.handler_trial import HandlerTrial
    from mulligan.service.authoring.step_trial import Fakes
    from mulligan.service.authoring.workflow_files import Validation
    from mulligan.service.rendering.drawing import Picture


class WorkflowVerbs:
    """The verbs of `Service` that need nothing but files."""

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
