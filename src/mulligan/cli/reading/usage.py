"""`mulligan usage`: what the steps of a run asked for and used, and better values for the file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mulligan.cli.output.tables import length, show_table
from mulligan.cli.output.terminal import complain, show, show_result
from mulligan.cli.words.options import LATEST, AsJson, HomeFolder, NewestRun, service_at
from mulligan.service.rendering.formatting import format_size
from mulligan.service.runs.statistics.usage import StepUsage, UsedResources

_HEADS = ("STEP", "TRIES", "MEMORY", "CPUS", "TIME")


def show_usage(run: NewestRun = LATEST, home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Compare the resources that steps requested with what they used.

    Better values are proposed as they are written in a file. Time is that of the longest successful attempt. Memory and
    CPUs leave out attempts that hung, timed out or were killed, since these do not show what the work needs. All items
    of a map, and all steps of a matrix, share one line.
    """
    with service_at(home) as service:
        run_id = service.runs.find(run)
        found = service.runs.usage(run_id)
    if as_json:
        show_result(found)
        return
    if not found:
        complain(f"nothing was measured in run {run_id} yet")
    has_tokens = any(line.used.tokens is not None for line in found)
    show_table((*_HEADS, *(("TOKENS",) if has_tokens else ()), ""), [_row(line, has_tokens) for line in found])
    _propose(found)


def _row(line: StepUsage, has_tokens: bool) -> tuple[str, ...]:
    asked, used = line.asked, line.used
    tokens = ("" if used.tokens is None else f"{used.tokens:,}",) if has_tokens else ()
    return (
        line.step if line.parts == 1 else f"{line.step} ({line.parts:,})",
        str(line.attempts),
        _of(used.memory, asked.memory, format_size),
        _of(used.cpus, asked.cpus, _cpus),
        _of(used.longest_seconds, asked.timeout, length),
        *tokens,
        "; ".join(_wants(used)),
    )


def _of(used: Any, asked: Any, form: Any) -> str:
    """`412MiB of 1.0GiB`; `412MiB` if nothing was asked for, `- of 1.0GiB` if nothing was measured."""
    shown = "-" if used is None else form(used)
    return shown if asked is None else f"{shown} of {form(asked)}"


def _cpus(number: float) -> str:
    return f"{round(number, 2):g}"


def _wants(used: UsedResources) -> Iterator[str]:
    if used.out_of_memory:
        yield f"{used.out_of_memory:,} ran out of memory"
    if used.timed_out:
        yield f"{used.timed_out:,} ran out of time"
    if used.hung:
        yield f"{used.hung:,} hung until the timeout"
    if used.killed:
        yield f"{used.killed:,} killed by a signal"


def _propose(found: list[StepUsage]) -> None:
    """Show what to write in the file, with the reason as a comment."""
    changed = [line for line in found if line.write]
    if found and not changed:
        complain("nothing to change" + _why_nothing(found))
    for line in changed:
        show("")
        show(f"{line.step}:")
        for key, value in line.write.items():
            show(f"  {key}: {value}  # {'; '.join(_reasons(line, key))}")


def _why_nothing(found: list[StepUsage]) -> str:
    if any(line.used.hung or line.used.killed for line in found):
        return ": attempts that hung or were killed do not show what a step needs"
    has_asked = any(getattr(line.asked, what) for line in found for what in ("memory", "cpus", "timeout"))
    return ": the requests fit the usage" if has_asked else ""


def _reasons(line: StepUsage, key: str) -> list[str]:
    return [each.text for each in line.proposals if (each.what == "timeout") == (key == "timeout")]
