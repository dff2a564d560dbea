"""`python -m proof.chaos --minutes 20 --runs 5000 --seed 1`: see proof/README.md."""

from __future__ import annotations

import argparse
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mulligan.testing.postgres import own_server
from proof.arguments import positive_float, positive_int
from proof.chaos import browsers
from proof.chaos.campaign import Chaos, Report, Settings
from proof.chaos.fleet import why_not_apart

# The first findings of a kind are enough.
SHOWN_MAX = 40


def main(words: list[str]) -> int:
    given = _parser().parse_args(words)
    # In the background Ctrl-C may be ignored; a SIGTERM has to clean up too.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    if no_browser := browsers.why_not():
        print(f"no browser watches: {no_browser}", file=sys.stderr)
    if why := why_not_apart():
        print(f"the remote worker sees the files of the server: {why}", file=sys.stderr)
    settings = Settings(
        given.seed,
        given.runs,
        given.minutes,
        given.workers,
        given.lease,
        watchers=given.watchers,
        has_browser=not no_browser,
    )
    folder = Path(tempfile.mkdtemp(prefix="mulligan-chaos-"))
    report = perform(settings, folder)
    for line in told(report):
        print(line)
    if report.findings or given.keep:
        print(f"\nwhat everybody said is in {folder}; to try again:")
        print(f"  make chaos MINUTES={settings.minutes:g} RUNS={settings.runs} SEED={settings.seed}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if report.findings else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proof.chaos", description=__doc__)
    parser.add_argument("--minutes", type=positive_float, default=20.0, help="how long there is trouble")
    parser.add_argument("--runs", type=positive_int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=positive_int, default=4)
    parser.add_argument("--lease", type=positive_float, default=2.0, metavar="SECONDS")
    parser.add_argument("--watchers", type=positive_int, default=20, help="how many follow the list of runs")
    parser.add_argument("--keep", action="store_true", help="keep what everybody said, whatever was found")
    return parser


def perform(settings: Settings, folder: Path) -> Report:
    """All of it. Whatever happens, nothing runs any more when this returns."""
    with own_server() as server:
        chaos = Chaos(settings, server, folder)
        try:
            with chaos:
                chaos.endure()
                chaos.finish()
            chaos.check()
        except KeyboardInterrupt:
            chaos.report.is_interrupted = True
            chaos.report.troubles = dict(chaos.trouble.counts)
    return chaos.report


def told(report: Report) -> Iterator[str]:
    """The report in words, with its numbers."""
    totals, settings = report.totals, report.settings
    if report.is_interrupted:
        yield "interrupted: what follows is what there was until then, and nothing was checked"
    yield f"{settings.workers} workers, a lease of {settings.lease_seconds:g}s, seed {settings.seed}"
    seconds = f"{report.trouble_seconds:.0f}s of trouble, {report.finish_seconds:.0f}s to finish"
    yield f"{seconds}, {report.check_seconds:.0f}s to check"
    for name, times in sorted(report.troubles.items()):
        yield f"  {times:6} {name}"
    endings = ", ".join(f"{count} {status}" for status, count in sorted(totals.endings.items()))
    yield f"{totals.runs} runs with their children ({endings}), {totals.events} events, {totals.rounds} rounds more"
    yield f"{totals.attempts} attempts, {totals.lost} lost, {totals.reruns} rerun for it, {totals.retries} retries"
    yield f"{totals.results} results held against the journal, {totals.refused_reports} late reports refused"
    yield f"{totals.sent} events from outside, in the logs of their runs"
    yield from _told_recoveries(report.recoveries)
    yield "the operators: " + (
        ", ".join(f"{count} {deed}" for deed, count in sorted(report.deeds.items())) or "nothing"
    )
    for what, counts in (("the watchers", report.watched), ("the schedule and its notices", report.announced)):
        yield f"{what}: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    yield f"{report.unfetched} answers that nobody fetched"
    yield f"{len(report.findings)} findings"
    yield from (f"  {found}" for found in report.findings[:SHOWN_MAX])


def _told_recoveries(seconds: list[float]) -> Iterator[str]:
    if seconds:
        middle, most = statistics.median(seconds), max(seconds)
        yield f"from a server that is back to work that goes on: median {middle:.2f}s, at most {most:.2f}s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
