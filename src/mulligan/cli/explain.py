"""`mulligan explain`: the story of a run, and what it waits for."""

from __future__ import annotations

import os
import sys
from typing import Any

from mulligan.cli.options import AsJson, HomeFolder, RunId, service_at, where
from mulligan.cli.showing import question
from mulligan.cli.tables import tinted
from mulligan.cli.terminal import complain, show, show_json, wants_colour
from mulligan.service.reading import Line


def explain(run: RunId, home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Tell the story of a run, and what it waits for."""
    with service_at(home) as service:
        found, story = service.show(run), list(service.explain(run))
    if as_json:
        lines = [{"at": line.at.isoformat(), **_words(line)} for line in story]
        show_json({"run_id": run, "status": found["status"], "story": lines, "waiting_for": found["waiting_for"]})
        return
    is_coloured = wants_colour(sys.stdout, os.environ)
    width = max((len(line.place) for line in story), default=0)
    for line in story:
        show(_sentence(line, width, is_coloured=is_coloured))
    _tell_what_is_waited_for(run, found, where(home))


def _words(line: Line) -> dict[str, str]:
    return {"place": line.place, "text": line.text, "tone": line.tone}


def _sentence(line: Line, width: int, *, is_coloured: bool) -> str:
    text = tinted(line.text, line.tone) if is_coloured else line.text
    return f"{line.at.astimezone():%H:%M:%S} {line.place:<{width}}  {text}"


def _tell_what_is_waited_for(run_id: int, found: dict[str, Any], home: str) -> None:
    for wait in found["waiting_for"]:
        place = f"'{wait['place']}' waits" if wait.get("place") else "the run waits"
        show(f"{place} for {wait['text']}")
        if asked := question(run_id, wait, home):
            complain(f"  {asked}")
