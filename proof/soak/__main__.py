"""`python -m proof.soak --minutes 60 --runs 50000`: see proof/README.md."""

from __future__ import annotations

import argparse
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec

from mulligan.testing.postgres import own_server
from proof.arguments import positive_float, positive_int
from proof.soak.figures import figures
from proof.soak.soak import Report, Settings, Soak
from proof.soak.verdict import MEMORY, Trend

# As PostgreSQL has it by itself: the tests have less, and a soak fills it.
DATABASE_SETTINGS = {"shared_buffers": "128MB"}
# The first findings are enough.
SHOWN_MAX = 40


def main(words: list[str]) -> int:
    given = _parser().parse_args(words)
    # In the background Ctrl-C may be ignored; a SIGTERM has to clean up too.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    settings = Settings(given.runs, given.minutes, given.watchers, given.workers, given.seed)
    folder = Path(tempfile.mkdtemp(prefix="mulligan-soak-"))
    report = perform(settings, folder, is_on_sqlite=given.sqlite)
    for line in told(report):
        print(line)
    if report.findings or given.keep:
        (folder / "report.json").write_bytes(msgspec.json.encode(report))
        print(f"\nwhat everybody said is in {folder}, every number in report.json there")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if report.findings or report.is_interrupted else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proof.soak", description=__doc__)
    parser.add_argument("--minutes", type=positive_float, default=60.0)
    parser.add_argument("--runs", type=positive_int, default=50_000, help="spread over the time")
    parser.add_argument("--watchers", type=positive_int, default=100)
    parser.add_argument("--workers", type=positive_int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sqlite", action="store_true", help="on SQLite in place of a PostgreSQL of its own")
    parser.add_argument("--keep", action="store_true", help="keep what everybody said, whatever was found")
    return parser


def perform(settings: Settings, folder: Path, *, is_on_sqlite: bool) -> Report:
    """All of it. Whatever happens, nothing runs any more when this returns."""
    with ExitStack() as exits:
        url = "" if is_on_sqlite else exits.enter_context(own_server(DATABASE_SETTINGS)).url
        soak = Soak(settings, folder, url)
        try:
            with soak:
                soak.endure()
                soak.check()
            soak.judge()
        except KeyboardInterrupt:
            soak.report.is_interrupted = True
    return soak.report


def told(report: Report) -> Iterator[str]:
    """The report in words, with its numbers."""
    settings = report.settings
    if report.is_interrupted:
        yield "interrupted: what follows is what there was until then, and nothing was judged"
    workers = f"{settings.workers} workers, {settings.watchers} watchers, {report.store}"
    yield f"{report.runs} of {settings.runs} runs in {report.seconds / 60:.1f} minutes, {workers}"
    if report.runs < settings.runs and not report.is_interrupted:
        yield "the machine was too slow for the others: the server was never given more than it could do"
    if report.loads:
        lowest, middle, most = min(report.loads), statistics.median(report.loads), max(report.loads)
        yield f"load of the machine: {middle:.1f} in the median, {lowest:.1f} to {most:.1f}"
    yield ", ".join(f"{count} {what}" for what, count in sorted(report.counts.items()))
    if report.machine:
        yield ""
        yield from figures(report)
    if report.trends:
        yield f"\n{'':32} {'':12} {'after warm-up':>14} {'at the end':>12} {'':>8}"
        yield from map(_told_trend, report.trends)
        yield ""
    yield f"{len(report.findings)} findings"
    yield from (f"  {found}" for found in report.findings[:SHOWN_MAX])


def _told_trend(trend: Trend) -> str:
    change = f"{100 * (trend.last / trend.first - 1):+.1f} %" if trend.first else ""
    first, last = (_told_number(trend.what, number) for number in (trend.first, trend.last))
    return f"{trend.name:32} {trend.what:12} {first:>14} {last:>12} {change:>9}{'  FOUND' if trend.finding else ''}"


def _told_number(what: str, number: float) -> str:
    if what == MEMORY:
        return f"{number / 2**20:.2f} MiB"
    return f"{number * 1000:.1f} ms" if what in ("p50", "p99") else f"{number:.1f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
