"""`mulligan gc`: remove files that no run refers to, and ended runs on request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from mulligan.cli.output.tables import show_table
from mulligan.cli.output.terminal import UsageRefused, complain, show_result
from mulligan.cli.words.options import AsJson, HomeFolder, service_at, where
from mulligan.cli.words.parameters import Flag, Option
from mulligan.service.authoring.values import parse_duration
from mulligan.service.host.gc import Garbage, GarbageReport, RunRetention
from mulligan.service.rendering.formatting import format_size, pluralize

# How many of each kind are listed.
SHOWN_MAX = 20


def gc(
    older_than: Annotated[str | None, Option("TIME", "Also remove runs that ended so long ago, such as 30d.")] = None,
    keep: Annotated[int | None, Option("N", "Also remove ended runs, except the N newest.")] = None,
    environments: Annotated[
        str | None, Option("TIME", "Remove environments not used for so long (default 30d).")
    ] = None,
    is_dry: Annotated[bool, Flag("Show what would be removed, and remove nothing.", "--dry-run")] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Remove files that no run refers to, and old runs on request.

    With --older-than or --keep, ended runs are removed with their events, files and called runs. Environments of python
    steps that have requirements are removed when they were not used for 30 days, and built again when they are needed.
    """
    if keep is not None and keep < 0:
        raise UsageRefused(f"--keep must be at least 0, not {keep}")
    retention = RunRetention(None if older_than is None else _age(older_than), keep)
    with service_at(home) as service:
        unused = None if environments is None else _age(environments)
        found = service.machine.collect_garbage(retention, unused_seconds=unused, is_dry=is_dry)
    if as_json:
        show_result(found)
        return
    show_table(("REMOVED" if not is_dry else "WOULD BE REMOVED", "SIZE"), [*_rows(found)])
    complain(_summary(found))
    if found.lost:
        those = f"{pluralize(len(found.lost), 'run')} that the database does not have"
        complain(f"files of {those} were not removed; to see why: mulligan doctor{where(home)}")
    for place, reason in found.unread.items():
        complain(f"artifacts in '{place}' were not examined: {reason}")
    if found.left:
        complain(f"logs were not examined: {found.left}")


def _age(text: str) -> float:
    """Seconds. A number without a unit is refused, since it might be meant as days."""
    if text.replace(".", "", 1).isdigit():
        raise UsageRefused(f"'{text}' has no unit", hint=f"write {text}d for days, {text}h for hours")
    return parse_duration(text)


def _rows(found: GarbageReport) -> Iterator[tuple[str, str]]:
    yield from _first("run", [Garbage(str(run_id), 0) for run_id in found.runs], "more run")
    yield from _first("artifact", found.artifacts, "more artifact")
    yield from _first("object", found.objects, "more object")
    yield from _first("half-written artifact", found.half_written, "more half-written artifact")
    yield from _first("logs of run", found.logs, "more run")
    yield from _first("files of worker", found.workers, "more worker")
    yield from _first("environment", found.environments, "more environment")
    yield from _first("worktree", found.worktrees, "more worktree")
    yield from ((f"old rows: {name}", f"{count:,}") for name, count in found.rows.items())


def _first(label: str, garbage: list[Garbage], more: str) -> Iterator[tuple[str, str]]:
    for one in garbage[:SHOWN_MAX]:
        yield f"{label} {one.name}", format_size(one.size) if one.size else ""
    if rest := garbage[SHOWN_MAX:]:
        yield f"and {pluralize(len(rest), more)}", format_size(sum(one.size for one in rest))


def _summary(found: GarbageReport) -> str:
    kinds = {
        "run": len(found.runs),
        "artifact": len(found.artifacts) + len(found.half_written),
        "object": len(found.objects),
        "log folder": len(found.logs),
        "dead worker": len(found.workers),
        "environment": len(found.environments),
        "worktree": len(found.worktrees),
        "old row": sum(found.rows.values()),
    }
    counts = [pluralize(number, noun) for noun, number in kinds.items() if number]
    if not counts:
        return "there is nothing to remove"
    verb = "would be removed" if found.is_dry else "removed"
    return f"{verb}: {', '.join(counts)}, {format_size(found.size)} of files"
