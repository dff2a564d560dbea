"""`mulligan explain`: the story of a run, and what it waits for."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Annotated

from mulligan.cli.output.tables import tinted
from mulligan.cli.output.terminal import complain, show, show_json, visible, wants_colour
from mulligan.cli.words.options import LATEST, AsJson, HomeFolder, NewestRun, find_run_and_step, service_at, where
from mulligan.cli.words.parameters import Argument, Flag
from mulligan.service.rendering.json_output import to_json
from mulligan.service.rendering.story_text import describe_question, format_story, format_wait
from mulligan.service.runs.views.run_story import LocatedLine, LocatedWait, StoryLine

# A large run has many lines, which are written in chunks.
_LINES_AT_ONCE = 1000


def explain(
    run: NewestRun = LATEST,
    step: Annotated[
        str | None, Argument("STEP", "A step, a part of one, or a matrix (default: the whole run).")
    ] = None,
    tree: Annotated[bool, Flag("Include the stories of its child runs.")] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Explain what happened in a run, and what it waits for.

    The story lists each failure, which rule matched or why none did, what handlers, people and failure edges did about
    it, and why edges were not taken.
    """
    with service_at(home) as service:
        run_id, place = find_run_and_step(service, run, step)
        story = service.runs.story(run_id, place, is_tree=tree)
        waits = service.runs.waits(run_id, place)
        if as_json:
            show_json([*map(to_json, story), *map(to_json, waits)])
            return
        _show(story)
    for one in waits:
        _show_wait(one, where(home))


def _show(story: Iterator[LocatedLine]) -> None:
    is_coloured = wants_colour(sys.stdout, os.environ)
    lines = format_story(story, _coloured) if is_coloured else format_story(story)
    while chunk := list(islice(lines, _LINES_AT_ONCE)):
        show("\n".join(chunk))


def _coloured(line: StoryLine) -> str:
    return tinted(visible(line.text), line.tone)


def _show_wait(located: LocatedWait, home: str) -> None:
    show(format_wait(located))
    if command := describe_question(located.run_id, located.wait, home):
        complain(f"  {command}")
