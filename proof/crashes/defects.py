"""The product broken on purpose: trials that would not find these defects would prove nothing.

`python -m proof.crashes --defects` holds the trial of each of them, in processes that are broken in this way, and fails
if one is not found. A part of them is in `make test`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from msgspec.structs import replace

from mulligan.ports import SettledNotice


class Defect(NamedTuple):
    """What breaks the product, the trial that must find it, and the law that is broken then."""

    name: str
    trial: str
    law: str

    @property
    def function(self) -> str:
        """As `forked_processes` takes it."""
        return f"{__name__}:{self.name}"


def forget_keys() -> None:
    """A server starts another run for a key that it has seen."""
    changes: Any = import_module("mulligan.api.areas.run_changes")
    changes._key = lambda call: ""


def write_audit_later() -> None:
    """A server writes a row of the audit with the next one."""
    log: Any = import_module("mulligan.service.server.audit").AuditLog
    waiting: list[Any] = []
    add = log.add

    def add_later(self: Any, records: Any) -> None:
        ready, waiting[:] = list(waiting), records
        add(self, ready)

    log.add = add_later


def settle_before_sending() -> None:
    """A sender writes that a notice was sent, and then sends it."""
    sender: Any = import_module("mulligan.service.server.notices.sender").Sender
    messages = sender._messages

    def messages_settled(self: Any, name: Any, target: Any, notices: Any, now: Any) -> Any:
        self._outbox.settle_notices([SettledNotice(one.id, "sent", one.attempts + 1, now) for one in notices])
        return messages(self, name, target, notices, now)

    sender._messages = messages_settled


def forget_what_is_sent() -> None:
    """A sender does not write that a notice was sent: it is sent again when the claim is over."""
    sender: Any = import_module("mulligan.service.server.notices.sender").Sender
    settled = sender._settled

    def settled_late(self: Any, *about: Any) -> Any:
        found = settled(self, *about)
        return [replace(one, status="waiting") if one.attempts < 3 else one for one in found]

    sender._settled = settled_late


def start_instants_without_keys() -> None:
    """A schedule starts an instant again if it does not know whether it has."""
    schedules: Any = import_module("mulligan.service.server.schedules.schedules")
    schedules.schedule_key = lambda *_: os.urandom(8).hex()


def give_up_lost_attempts() -> None:
    """What a dead worker had counts as failed."""
    ladder: Any = import_module("mulligan.core.deciding.ladder")
    ladder.RERUNS_AFTER_LOSS_MAX = -1


def blame_steps_for_the_disk() -> None:
    """What fails on a full disk is the fault of the step."""
    executor: Any = import_module("mulligan.worker.local_executor")
    storage: Any = import_module("mulligan.worker.outputs.output_storage")
    executor.with_machine_trouble = lambda report, *_: report
    storage.trouble_of = lambda _: ""


def believe_lost_tasks() -> None:
    """What a dead Dask worker had counts as done."""
    executor: Any = import_module("mulligan.dask_executor.executor")
    reports: Any = import_module("mulligan.core.model.reports")
    outcome: Any = import_module("mulligan.core.model.outcome").Outcome

    def done(at: Any, place: str, attempt: int, worker: str) -> Any:
        return reports.TaskEnded(at, place, attempt, outcome(exit_code=0))

    executor.LeaseExpired = done


def submit_without_looking() -> None:
    """An allocator does not ask Slurm which pilots there are."""
    client: Any = import_module("mulligan.service.host.slurm.client").SlurmClient
    client.jobs = lambda self, prefix: []


# Requests 1 to 5 of the client publish workflows, 6 to 10 start runs, 14 retries one.
DEFECTS = (
    Defect("forget_keys", "sqlite/http_server:after_request@6", "one_key_is_one_run"),
    Defect("write_audit_later", "sqlite/http_server:after_request@14", "a_change_is_in_the_audit"),
    Defect("settle_before_sending", "sqlite/background:before_send@1", "no_notice_is_lost"),
    Defect("forget_what_is_sent", "sqlite/background:after_send@1", "a_notice_is_sent_again_after_a_death_alone"),
    Defect("start_instants_without_keys", "sqlite/background:after_schedule_start@1", "an_instant_starts_one_run"),
    Defect("give_up_lost_attempts", "sqlite/remote:before_report@3", "the_outcome_is_as_undisturbed"),
    # The ninth command prints what becomes an artifact.
    Defect("blame_steps_for_the_disk", "sqlite/full_disk:full@9", "the_outcome_is_as_undisturbed"),
    Defect("give_up_lost_attempts", "sqlite/worktrees:before_report@2", "every_fork_is_merged"),
    Defect("give_up_lost_attempts", "sqlite/dask:before_report@3", "the_outcome_is_as_undisturbed"),
    Defect("believe_lost_tasks", "sqlite/dask_worker:after_start@2", "the_outcome_is_as_undisturbed"),
    Defect("give_up_lost_attempts", "postgres/pilot:before_report@3", "the_outcome_is_as_undisturbed"),
    Defect("submit_without_looking", "postgres/allocator:after_program@2", "pilots_are_submitted_once"),
)

Hold = Callable[[str, str], list[str]]


def unfound(hold: Hold, defects: tuple[Defect, ...] = DEFECTS) -> list[str]:
    """The defects that their trials do not find. `hold` holds a trial with a defect, and gives what is wrong."""
    missed = []
    for defect in defects:
        wrong = hold(defect.trial, defect.function)
        if not any(sentence.startswith(f"{defect.law}: ") for sentence in wrong):
            missed.append(f"{defect.trial} does not find '{defect.name}' by {defect.law}: {wrong}")
    return missed
