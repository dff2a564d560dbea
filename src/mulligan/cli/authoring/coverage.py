"""`mulligan coverage`: what a workflow does about failures, before any of them has happened."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

from mulligan.analysis.coverage.explore import CaseStory
from mulligan.analysis.coverage.figures import count_figures
from mulligan.analysis.coverage.results import Times
from mulligan.cli.output.tables import columns
from mulligan.cli.output.terminal import UsageRefused, complain, show, show_bytes, show_result, wants_colour
from mulligan.cli.words.format_options import MapPatterns, MaxIterations
from mulligan.cli.words.given_inputs import Inputs, InputsFile, given_inputs
from mulligan.cli.words.options import AsJson, Catalogue, System, TrustTemplates
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.service.authoring.area import Workflows
from mulligan.service.authoring.format_options import read_format_options
from mulligan.service.authoring.named_files import write_file
from mulligan.service.rendering.console.coverage_text import case_story_lines, coverage_lines

TIMES: tuple[Times, ...] = ("once", "twice", "always")
# The width of what is written to a file or a pipe.
_PIPE_COLUMNS = 100
BELOW = 1


def coverage(
    file: Annotated[Path, Argument("FILE", "A workflow file, of ours or of another system.")],
    step: Annotated[str | None, Option("STEP", "Only this step.")] = None,
    failure: Annotated[
        str | None, Option("FAILURE", "Only this failure; with --step: show what happens, line by line.")
    ] = None,
    times: Annotated[str | None, Option("TIMES", "How often it happens in that story: once, twice or always.")] = None,
    percent_min: Annotated[
        int | None, Option("PERCENT", "Exit with 1 if less is dealt with or accepted; for CI.", "--min")
    ] = None,
    shows_all: Annotated[bool, Flag("Show every step, failure and finding of a large workflow.", "--all")] = False,
    html: Annotated[str | None, Option("FILE", "Write it as one HTML page with all stories; '-' is stdout.")] = None,
    seed: Annotated[int, Option("N", "Which pairs are played if there are too many.")] = 0,
    pairs: Annotated[bool, Flag("Play pairs of failures too (default), or not.", "--pairs/--no-pairs")] = True,
    rehearse: Annotated[
        Path | None, Option("FAKES", "Play a program: a YAML file that says how its calls end, as for 'rehearse'.")
    ] = None,
    inputs: Inputs = None,
    inputs_file: InputsFile = None,
    system: System = None,
    trust_templates: TrustTemplates = False,
    catalogue: Catalogue = None,
    patterns: MapPatterns = None,
    iterations: MaxIterations = None,
    as_json: AsJson = False,
) -> int:
    """Show what a workflow does about each failure of each step, and what nobody deals with.

    The workflow is played in memory: no command is run. Each step fails in each way that can happen to it, once, twice
    and every time; a cell of the table is the worst of these. Files of Torc, Prodigy, NoETL and Alphred can be played
    too. What a program does is decided by its code: --rehearse plays it, with fakes in place of its steps.
    The exit code is 0; with --min it is 1 if less than PERCENT of all failures are dealt with or accepted in the file;
    it is 2 if the file or an option is refused.
    """
    _check(step, failure, times, percent_min, html)
    how: dict[str, Any] = {
        "named": system,
        "trust_templates": trust_templates,
        "catalogue": catalogue,
        "options": read_format_options(patterns, iterations),
        "inputs": given_inputs(inputs, inputs_file),
    }
    play = (
        partial(Workflows.play, file, **how) if rehearse is None else partial(Workflows.rehearse, file, rehearse, **how)
    )
    if step is not None and failure is not None:
        _show_story(play().story_of_case(step, failure, cast(Times, times or "always")), as_json=as_json)
        return 0
    if html is not None:
        written = play().page(seed=seed, pairs=pairs)
        _write(html, written.html)
        found = written.coverage
    else:
        found = play().cover(step=step or "", failure=failure or "", seed=seed, pairs=pairs)
    figures = count_figures(found)
    if as_json:
        show_result(found)
    elif html != "-":
        is_coloured = wants_colour(sys.stdout, os.environ)
        lines = coverage_lines(
            found,
            figures,
            file=str(file),
            source=_source(file) if found.findings else "",
            width=_width(),
            is_coloured=is_coloured,
            shows_all=shows_all,
        )
        show("\n".join(lines))
    if percent_min is None or figures.reaches(percent_min):
        return 0
    complain(f"{figures.percent}% of the failures are dealt with or accepted, and --min asks for {percent_min}%")
    return BELOW


def _check(step: str | None, failure: str | None, times: str | None, percent_min: int | None, html: str | None) -> None:
    is_story = step is not None and failure is not None
    if times is not None and times not in TIMES:
        raise UsageRefused(f"--times: '{times}' is not known", hint="use once, twice or always")
    if times is not None and not is_story:
        raise UsageRefused("--times needs one step and one failure", hint="name them with --step and --failure")
    if percent_min is not None and not 0 <= percent_min <= 100:
        raise UsageRefused(f"--min must be a percentage, not {percent_min}", hint="give a number from 0 to 100")
    if percent_min is not None and (step is not None or failure is not None):
        raise UsageRefused("--min is about the whole workflow", hint="leave --step and --failure out")
    if html is not None and (step is not None or failure is not None):
        raise UsageRefused("--html writes the whole workflow", hint="leave --step and --failure out")


def _show_story(found: CaseStory, *, as_json: bool) -> None:
    if as_json:
        show_result(found)
        return
    is_coloured = wants_colour(sys.stdout, os.environ)
    show("\n".join(case_story_lines(found.case, found.kind, found.story, is_coloured=is_coloured)))


def _write(out: str, html: str) -> None:
    data = html.encode("utf-8", "replace")
    if out == "-":
        show_bytes(data)
        return
    write_file(Path(out), data)
    complain(f"wrote {out}")


def _source(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _width() -> int:
    if sys.stdout.isatty():
        return columns()
    said = os.environ.get("COLUMNS", "")
    return (int(said) if said.isdecimal() else 0) or _PIPE_COLUMNS
