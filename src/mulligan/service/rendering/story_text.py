"""The story of a run as lines of text, and what it waits for with the command that answers it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from itertools import chain, islice

from mulligan.core.model.text.formatting import single_line
from mulligan.history.story import StoryLine
from mulligan.history.views import Wait
from mulligan.service.runs.views.run_story import LocatedLine, LocatedWait

# The largest width of the column of places, and the number of lines that it is measured on.
PLACE_CHARS_MAX, MEASURED_MAX = 30, 1000


def _plain(line: StoryLine) -> str:
    return line.text


def format_story(story: Iterator[LocatedLine], text_of: Callable[[StoryLine], str] = _plain) -> Iterator[str]:
    """The lines of a story: time, place, text. `text_of` may add colours."""
    first = list(islice(story, MEASURED_MAX))
    width = max((len(one.where) for one in first if len(one.where) <= PLACE_CHARS_MAX), default=0)
    indent, second, clock = " " * (width + len("00:00:00")), None, ""
    for one in chain(first, story):
        line = one.line
        # Thousands of lines of a large run have the same second.
        if (at := line.at.replace(microsecond=0)) != second:
            second, clock = at, f"{at.astimezone():%H:%M:%S}"
        tail = "".join([f"\n{indent}   | {written}" for written in line.tail]) if line.tail else ""
        yield f"{clock} {one.where:<{width}}  {text_of(line)}{tail}"


def format_wait(located: LocatedWait) -> str:
    """What is waited for, in a line."""
    place = f"'{located.where}'" if located.where else "the run"
    return f"{place} waits for {single_line(located.wait.text)}{when_default_applies(located.wait)}"


def when_default_applies(wait: Wait) -> str:
    """When the default happens, if no person answers."""
    if wait.kind not in ("triage", "approval") or not wait.due:
        return ""
    return f"; the default applies {wait.due.astimezone():on %Y-%m-%d at %H:%M}"


def describe_question(run_id: int, wait: Wait, home: str) -> str:
    """The command that answers what a run waits for; "" if nobody is asked. `home`: its `--home` option."""
    name = wait.shown_place
    typed = f"{run_id} {shlex.quote(name)}"
    if wait.kind == "triage":
        return f"'{name}' is parked: mulligan classify {typed} retry|fail --reason TEXT{home}"
    if wait.kind == "approval":
        return f"'{name}' waits for an approval: mulligan approve {typed} --reason TEXT{home}"
    if wait.kind == "event":
        return f"'{name}' waits for an event: mulligan send {run_id} {shlex.quote(wait.event)} VALUE{home}"
    if wait.kind == "step_pause":
        step = wait.steps[0]
        return f"step '{step}' is paused: mulligan resume {run_id} {step}{home}"
    return f"it is paused: mulligan resume {run_id}{home}" if wait.kind == "pause" else ""
