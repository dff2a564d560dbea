"""Durable runs beside their peers, in one run, as ratios: chains, programs, many runs, fans, start-up, resume, memory.

    python bench/durable.py --install                       every workload, the peers installed first
    python bench/durable.py chain fan [--json FILE]         some workloads, with the peers that are there
    python bench/durable.py chain --count 100 --rounds 1    smaller, to see that it works

Every contestant runs in a process, a folder and, on PostgreSQL, a database of its own; they take turns, three rounds,
and the best time counts. A run with one step is timed as well and taken off, so that rates are free of start-up. A peer
that cannot be installed or run is named with the reason, and the others go on. See bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from peers import environments, ours, postgres, resume, tables
from peers.environments import NotRun
from peers.race import Outcome, race
from peers.workloads import Workload, all_workloads

GROUPS = ("chain", "chain-postgres", "program", "runs", "fan", "start", "resume", "memory")
RESUME_COUNT = 1_000


def main() -> None:
    """Measure what the command line asks for, and print it."""
    # So that a terminated bench still stops its server and removes its folders.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    asked = _arguments()
    groups = asked.workloads or GROUPS
    workloads = _chosen(asked, groups)
    if asked.install:
        _install(workloads)
    ours.compile_bytecode()
    report: dict[str, Any] = {"command": shlex.join(["python", *sys.argv]), "machine": tables.machine()}
    _say(report)
    outcomes = _race_all(workloads, asked.rounds, report)
    report["flatness"] = [_told(verdict) for verdict in tables.flatness(outcomes)]
    report["resume"] = _resume(asked.count or RESUME_COUNT) if "resume" in groups else None
    if asked.json:
        asked.json.write_text(
            json.dumps(report | {"workloads": [tables.as_json(o) for o in outcomes]}, indent=1) + "\n"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"some of {', '.join(GROUPS)} (default: all)")
    parser.add_argument("--install", action="store_true", help="make the peers' environments in bench/.envs first")
    parser.add_argument("--all", action="store_true", help="run every peer also at 100,000 steps")
    parser.add_argument("--count", type=int, help="this many steps or runs instead of each workload's own number")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of which the best counts (default 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every single time to FILE")
    asked = parser.parse_args()
    unknown = set(asked.workloads) - set(GROUPS)
    if unknown:
        parser.error(f"no workload is called {', '.join(sorted(unknown))}: they are {', '.join(GROUPS)}")
    if asked.count is not None and asked.count < 2:
        parser.error("--count must be at least 2: a run with one step is what is taken off")
    return asked


def _chosen(asked: argparse.Namespace, groups: tuple[str, ...]) -> list[Workload]:
    """The workloads of these groups; with --count all of that size, and each only once."""
    chosen = [workload for workload in all_workloads(asked.all) if workload.group in groups]
    if asked.count:
        chosen = [replace(load, count=asked.count) if load.group != "start" else load for load in chosen]
        chosen = list({(load.group, load.title, load.parallel): load for load in reversed(chosen)}.values())[::-1]
    return chosen


def _install(workloads: list[Workload]) -> None:
    wanted = {peer.environment for workload in workloads for peer in workload.peers if peer.environment}
    if any(workload.on_postgres for workload in workloads):
        wanted.add("postgres")
    for name in sorted(wanted):
        try:
            environments.install(name)
        except NotRun as problem:
            print(f"{name}: {problem}", file=sys.stderr)


def _race_all(workloads: list[Workload], rounds: int, report: dict[str, Any]) -> list[Outcome]:
    """Every workload, each table printed as soon as it is there; one server for those that need one."""
    outcomes = []
    with _server(workloads, report) as server:
        for workload in workloads:
            if workload.on_postgres and not server:
                print(f"### {workload.group}: not run: {report['postgres']}\n", flush=True)
                continue
            outcomes.append(race(workload, rounds, server))
            print(tables.table(outcomes[-1]), flush=True)
    return outcomes


@contextmanager
def _server(workloads: list[Workload], report: dict[str, Any]) -> Iterator[str]:
    """The URL of a PostgreSQL server if one is needed and can be had, else nothing; the report says which."""
    if not any(workload.on_postgres for workload in workloads):
        yield ""
        return
    with ExitStack() as stack:
        try:
            url = stack.enter_context(postgres.server())
            report["postgres"] = postgres.server_version(url)
        except NotRun as problem:
            url, report["postgres"] = "", str(problem)
        print(f"- PostgreSQL: {report['postgres']}\n", flush=True)
        yield url


def _resume(count: int) -> list[dict[str, Any]] | str:
    print(f"### resume: kill -9 in the middle of a chain of {count:,} Python steps, then `mulligan resume`\n")
    try:
        return [_told(verdict) for verdict in resume.resume(count)]
    except NotRun as problem:
        print(f"- Mulligan: not run: {problem}")
        return str(problem)


def _told(verdict: tables.Verdict) -> dict[str, Any]:
    print(f"- {verdict}", flush=True)
    return tables.verdict_as_json(verdict)


def _say(report: dict[str, Any]) -> None:
    print(f"    {report['command']}\n")
    for name, value in report["machine"].items():
        print(f"- {name}: {value}")
    print(flush=True)


if __name__ == "__main__":
    main()
