"""A text that somebody is writing: what is wrong with it, and its picture, in one look at it."""

from __future__ import annotations

import msgspec

from mulligan.errors import LanguageError
from mulligan.service.authoring.workflow_files import Validation, describe
from mulligan.service.rendering.drawing import draw_page_svg
from mulligan.service.server.catalogue.text_reading import read_apart
from mulligan.service.server.catalogue.texts import WorkflowText, locate_steps

# A picture with more cards is no help, and takes longer than a keystroke.
NODES_MAX = 300


class StepPosition(msgspec.Struct, frozen=True):
    """A step, and the line of the text in which it begins."""

    name: str
    line: int


class DrawnText(msgspec.Struct, frozen=True):
    """The picture of a text, as SVG in the colours of the dashboard; "" if it has too many steps to be drawn."""

    svg: str
    # In the order of the text.
    steps: tuple[StepPosition, ...]


class ExaminedText(msgspec.Struct, frozen=True):
    """What a check of a text finds. A text that is refused has no picture."""

    validation: Validation
    graph: DrawnText | None = None


@read_apart
def examine_and_draw(given: WorkflowText) -> ExaminedText:
    """Check a text, and draw it."""
    try:
        examined, lines = locate_steps(given)
    except LanguageError as refused:
        return ExaminedText(Validation(False, given.file, problems=tuple(refused.problems), error=refused))
    svg = draw_page_svg(examined.workflow, lines=lines, nodes_max=NODES_MAX)
    steps = tuple(StepPosition(name, line) for name, line in sorted(lines.items(), key=lambda one: one[1]))
    return ExaminedText(describe(given.file, examined), DrawnText(svg, steps))
