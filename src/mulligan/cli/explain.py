"""`mulligan explain`: the story of a run, and what it waits for."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import chain, islice
from typing import Annotated, Any

from mulligan.cli.options import LATEST, AsJson, HomeFolder, NewestRun, find_run_and_step, service_at, where
from mulligan.cli.parameters import Argument, Option
from mulligan.cli.show import question, until
from mulligan.cli.tables import tinted
from mulligan.cli.terminal import complain, show, show_json, visible, wants_colour
from mulligan.service import Asked, Line, Sentence
from mulligan.service.formatting import single_line

# How wide the column of places becomes at most, and of how many lines it is measured.
PLACE_CHARS_MAX, MEASURED_MAX = 30, 1000
# A large run has many lines: each is not worth a write of its own.
_LINES_AT_ONCE = 1000


def explain(
    run: NewestRun = LATEST,
    step: Annotated[
        str | None, Argument(metavar="STEP", help="One step, a part of one, or a matrix; else all of it.")
    ] = None,
    tree: Annotated[bool, Option("--tree", help="With the stories of the runs that it called, where it did.")] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Explain what happened in a run, and what it waits for.

    From its events alone: each failure, which rule matched or why none did, what handlers, people and remediations
    made of it, why an edge was taken and the others were not.
    """
    with service_at(home) as service:
        run_id, place = find_run_and_step(service, run, step)
        story = service.story(run_id, place, is_tree=tree)
        asked = service.waits(run_id, place)
        if as_json:
            show_json([*map(_as_json, story), *map(_wait_as_json, asked)])
            return
        _show(story)
    for one in asked:
        _tell_what_is_waited_for(one, where(home))


def _as_json(told: Sentence) -> dict[str, Any]:
    line = told.line
    at, seq = line.at.isoformat(), line.seq
    return {
        "run_id": told.run_id,
        "seq": seq,
        "at": at,
        "place": line.place,
        "text": line.text,
        "tone": line.tone,
        **_written(line),
    }


def _written(line: Line) -> dict[str, Any]:
    return {"tail": list(line.tail)} if line.tail else {}


def _wait_as_json(asked: Asked) -> dict[str, Any]:
    """What is waited for is no event: it has no number and no time."""
    place, text = asked.wait.get("place", ""), f"waits for {asked.wait['text']}"
    line = {"run_id": asked.run_id, "seq": None, "at": None, "place": place, "text": text, "tone": "wait"}
    return {**line, "waiting_for": asked.wait}


def _show(story: Iterator[Sentence]) -> None:
    is_coloured = wants_colour(sys.stdout, os.environ)
    first = list(islice(story, MEASURED_MAX))
    width = max((len(told.where) for told in first if len(told.where) <= PLACE_CHARS_MAX), default=0)
    lines = (_sentence(told, width, is_coloured=is_coloured) for told in chain(first, story))
    while chunk := list(islice(lines, _LINES_AT_ONCE)):
        show("\n".join(chunk))


def _sentence(told: Sentence, width: int, *, is_coloured: bool) -> str:
    line = told.line
    text = tinted(visible(line.text), line.tone) if is_coloured else line.text
    below = "".join(f"\n{'':{width + len('00:00:00')}}   | {written}" for written in line.tail)
    return f"{line.at.astimezone():%H:%M:%S} {told.where:<{width}}  {text}{below}"


def _tell_what_is_waited_for(asked: Asked, home: str) -> None:
    place = f"'{asked.where}' waits" if asked.where else "the run waits"
    show(f"{place} for {single_line(asked.wait['text'])}{until(asked.wait)}")
    if answer := question(asked.run_id, asked.wait, home):
        complain(f"  {answer}")
