"""The tables: for people as Markdown, for programs as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from peers.bars import Verdict
from peers.processes import SCRATCH
from peers.race import Outcome, Result
from peers.versions import PINS, version

_FLAT_WITHIN = 1.5


def machine() -> dict[str, str]:
    """What the numbers depend on besides the programs."""
    return {
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "filesystem": _filesystem(SCRATCH),
        "load": f"{os.getloadavg()[0]:.1f} at the start",
        "mulligan": _mulligan_version(),
        "peers": ", ".join(pin for pins in PINS.values() for pin in pins),
    }


def table(outcome: Outcome) -> str:
    """One workload: a line for each contestant, then a line for each bar."""
    workload = outcome.workload
    head = f"### {workload.group}: {workload.count:,} {workload.title}"
    if workload.parallel > 1:
        head += f", {workload.parallel} at a time"
    reference = outcome.ours[0]
    columns = ("", "version", "total s", "start-up s", f"{workload.unit}/s", "Mulligan is", "peak MB")
    lines = ["| " + " | ".join(columns) + " |", "|---|---|" + "---:|" * 5]
    lines += ["| " + " | ".join(_cells(outcome, result, reference)) + " |" for result in outcome.results]
    notes = [f"- {result.contestant.name}: not run: {result.reason}" for result in outcome.results if result.reason]
    notes += [f"- {verdict}" for verdict in outcome.verdicts()]
    return "\n".join([head, "", *lines, "", *notes]) + "\n"


def _cells(outcome: Outcome, result: Result, reference: Result) -> list[str]:
    name, environment = result.contestant.name, result.contestant.environment
    is_ours = result in outcome.ours
    cells = [name, version(environment) if environment else _mulligan_version() if is_ours else ""]
    cost = outcome.cost(result)
    if cost is None:
        return [*cells, "not run", "", "", "", ""]
    ratio = outcome.times_as_fast(reference, result)
    startup = f"{result.startup:.3f}" if result.startups else ""
    rate = f"{1 / cost:,.1f}" if outcome.workload.is_net else ""
    times = "" if ratio is None or result is reference else f"{ratio:.2f}x"
    return [*cells, f"{result.seconds:.3f}", startup, rate, times, f"{result.megabytes:.0f}"]


def flatness(outcomes: list[Outcome]) -> Iterator[Verdict]:
    """For the fans: how the cost of a step grows from the smallest to the largest, one verdict for each of ours."""
    fans = [outcome for outcome in outcomes if outcome.workload.group == "fan"]
    for parallel in sorted({outcome.workload.parallel for outcome in fans}):
        alike = [outcome for outcome in fans if outcome.workload.parallel == parallel]
        smallest, largest = alike[0], alike[-1]
        for first, last in zip(smallest.ours, largest.ours, strict=True):
            small, large = smallest.cost(first), largest.cost(last)
            if small and large and smallest is not largest:
                sizes = f"{smallest.workload.count:,} to {largest.workload.count:,} steps, {parallel} at a time"
                what = f"{first.contestant.name}: cost of a step, {sizes}"
                yield Verdict(what, "x", large / small, _FLAT_WITHIN, None, more_is_better=False)


def as_json(outcome: Outcome) -> dict[str, Any]:
    """One workload with every single time."""
    workload = outcome.workload
    return {
        "workload": workload.group,
        "title": workload.title,
        "count": workload.count,
        "parallel": workload.parallel,
        "results": [_result_as_json(outcome, result) for result in outcome.results],
        "verdicts": [verdict_as_json(verdict) for verdict in outcome.verdicts()],
    }


def verdict_as_json(verdict: Verdict) -> dict[str, Any]:
    return asdict(verdict) | {"is_met": verdict.is_met, "is_stretch_met": verdict.is_stretch_met}


def _result_as_json(outcome: Outcome, result: Result) -> dict[str, Any]:
    return {
        "name": result.contestant.name,
        "totals": result.totals,
        "startups": result.startups,
        "seconds_each": outcome.cost(result),
        "mulligan_is": outcome.times_as_fast(outcome.ours[0], result),
        "megabytes": result.megabytes,
        "reason": result.reason,
    }


def _mulligan_version() -> str:
    try:
        return metadata.version("mulligan")
    except metadata.PackageNotFoundError:
        return "from its source"


def _filesystem(folder: Path) -> str:
    """The type of the file system below `folder`, from the longest mount point that holds it."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    holding = [(len(point), kind) for point, kind in mounts if folder.resolve().is_relative_to(point)]
    return max(holding, default=(0, "unknown"))[1]
