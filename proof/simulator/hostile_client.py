"""A client that sends to the runs of a simulated cluster what ours never do: see `hostile_reports`."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

import msgspec

from mulligan.core.deciding.report_checks import check_report
from mulligan.core.model import reports as r
from mulligan.errors import InputInvalid
from proof.simulator.cluster.simulated_cluster import SimulatedCluster
from proof.simulator.hostile_reports import HostileReports

# The share of histories with such a client, how many it sends at most, and how often it does after a step.
_SHARE, _SENT_MAX, _OFTEN = 0.06, 12, 0.15
# The name under which `without` leaves it out.
HOSTILE = "hostile"


class HostileClient:
    """Sends reports to any run at any moment. What makes no sense is refused, and no engine meets a bug.

    All chance is its own, so that the histories of other seeds stay as they are.
    """

    def __init__(self, seed: object, cluster: SimulatedCluster, without: Collection[str] = ()) -> None:
        self._chance = Random(f"hostile {seed}")
        self._cluster = cluster
        is_there = self._chance.random() < _SHARE and HOSTILE not in without
        self._left = self._chance.randint(1, _SENT_MAX) if is_there else 0
        # What is not answered yet, and whether it can make sense.
        self._asked: dict[int, tuple[r.Report, bool]] = {}

    def act(self) -> None:
        """Perhaps send something."""
        if self._left and self._chance.random() < _OFTEN:
            self._left -= 1
            self.send(self._chance.choice(list(self._cluster.checker.runs)))

    def send(self, run_id: int) -> None:
        """Put a random report into the inbox of a run."""
        state = self._cluster.checker.runs[run_id].state
        report = HostileReports.about(self._chance, state).one()
        is_senseless = _is_senseless(report)
        if not is_senseless:
            report = self._without_consequences(run_id, report)
        self._cluster.happened[HOSTILE] += 1
        message_id = self._cluster.operator.put(run_id, report, is_asking=True)
        self._asked[message_id] = (report, is_senseless)

    def _without_consequences(self, run_id: int, report: r.Report) -> r.Report:
        """The same without what is possible and would keep the simulation from its end.

        A child run continues with its caller, and a definition may be one that waits for ever.
        """
        if isinstance(report, r.RetryRequested):
            return msgspec.structs.replace(report, revised=None)
        is_child = run_id not in self._cluster.roots()
        if is_child and isinstance(report, r.PauseRequested | r.ResumeRequested) and not report.step:
            return msgspec.structs.replace(report, step="nowhere")
        return report

    def hear(self) -> None:
        """Look at the answers that have arrived. Raise if something was accepted that makes no sense."""
        for message_id, (report, is_senseless) in list(self._asked.items()):
            answer = self._cluster.operator.answer(message_id)
            if answer is None:
                continue
            self._cluster.note_answer(message_id)
            del self._asked[message_id]
            self._cluster.happened["hostile, refused" if answer.error else "hostile, accepted"] += 1
            if is_senseless and not answer.error:
                raise AssertionError(f"promise 10: a run has accepted what makes no sense: {report!r:.300}")


def _is_senseless(report: r.Report) -> bool:
    try:
        check_report(report)
    except InputInvalid:
        return True
    return False
