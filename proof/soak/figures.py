"""What there was in each sixth of the time, as a table: of an hour, a line for each ten minutes."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from proof.soak.machine import share_of_others
from proof.soak.soak import Report
from proof.soak.verdict import MEMORY, Sample, percentile

PARTS = 6
# The latencies that are shown.
_KINDS = ("submit: accepted", "submit: ended")


def figures(report: Report) -> Iterator[str]:
    """Medians of what is held, p99 of the answers, and which share of the machine others used meanwhile."""
    processes = ["server", *(f"worker {number}" for number in range(1, report.settings.workers + 1))]
    shown = "".join(f"{name:>12}" for name in processes)
    yield f"{'minutes':>7}{'runs':>8}{shown}{'files':>7}{'connections':>13}{'accepted':>11}{'ended':>11}{'others':>8}"
    size = report.settings.seconds / PARTS
    for n in range(PARTS):
        begin, end = n * size, (n + 1) * size
        samples = [sample for sample in report.samples if begin <= sample.at < end]
        answers = {
            kind: [one.seconds for one in report.latencies if one.kind == kind and begin <= one.at < end]
            for kind in _KINDS
        }
        yield "".join(
            (
                f"{end / 60:>7.0f}{len(answers[_KINDS[0]]):>8}",
                *(f"{_median(samples, name, MEMORY) / 2**20:>8.1f} MiB" for name in processes),
                f"{_median(samples, 'server', 'files'):>7.0f}{_median(samples, 'database', 'connections'):>13.0f}",
                *(f"{1000 * percentile(found, 0.99) if found else 0:>8.0f} ms" for found in answers.values()),
                f"{100 * share_of_others(report.machine, begin, end):>6.0f} %",
            )
        )


def _median(samples: Sequence[Sample], name: str, what: str) -> float:
    found = [sample.holdings[what] for sample in samples if sample.name == name]
    return statistics.median(found) if found else 0.0
