"""The background process of a server dies while it fires a schedule and sends notices; another one goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from mulligan.core.model import events as e
from mulligan.ports import NoticeRecord
from mulligan.service.server.schedules.forms import ScheduleForm
from mulligan.service.service import Service
from proof.chaos.announcements import let_claims_end
from proof.crashes.faults import Fault
from proof.crashes.forked_processes import ForkedProcesses
from proof.crashes.outcome_checks import TrialOutcome, complaints
from proof.crashes.served import Received, ServedStage, receiving, runs_of
from proof.crashes.server_trials import LAWS
from proof.stage import Stage

SCHEDULE = "nightly"
INSTANTS = 3
# A run is announced when it needs a person and when it has completed: nobody answers, so it goes on after a while.
FLOW = """
name: nightly
notify: [{on: [needs_person, completed], to: [ops, people]}]
steps:
  - {step: gate, approve: {message: 'may it?', timeout: 50ms}, on_failure: 'sh $ACT decide'}
  - {step: work, needs: [gate], shell: 'sh $ACT work'}
"""
TARGETS = ("ops", "people")
EVENTS = ("mulligan.run.needs_person", "mulligan.run.completed")


class BackgroundTrial:
    """Three instants that were missed are started, one after the other, and four notices about each are sent."""

    def __init__(self, stage: Stage, processes: ForkedProcesses) -> None:
        self._served = ServedStage(stage, processes)
        self._served.died = self._note_death
        self._stage = stage
        # The notices that were settled as sent when the sender died.
        self._settled: set[str] = set()

    def held(self, fault: Fault | None) -> tuple[bool, list[str]]:
        served = self._served
        try:
            with receiving() as (url, received), self._stage.service() as service:
                instants = self._prepare(service)
                config = self._stage.folder / "server.toml"
                config.write_text("".join(f'[targets.{name}]\nwebhook = "{url}"\n' for name in TARGETS))
                served.start("worker", "worker", "--parallel", "2")
                words = (self._stage.home.folder, "text")
                environment = {"MULLIGAN_CONFIG": str(config)}
                served.start("background", *words, program="background", fault=fault, environment=environment)
                served.wait_until(lambda: self._is_over(service), lambda: f"not all is sent: {outbox(service)}")
                wrong = served.end()
                wrong += complaints(TrialOutcome(self._stage, service, {}, {}), LAWS)
                wrong += wrong_instants(service, instants)
                wrong += self._wrong_notices(service, received)
        finally:
            served.kill()
        return served.has_happened, wrong

    def _prepare(self, service: Service) -> list[str]:
        """A schedule that has missed its last instants. The instants, as the labels of runs have them."""
        service.catalogue.publish(SCHEDULE, FLOW)
        service.schedules.put(SCHEDULE, ScheduleForm(workflow=SCHEDULE, cron="0 0 * * *", catch_up="none"))
        now = datetime.now(UTC)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        filled = service.schedules.backfill(SCHEDULE, midnight - timedelta(days=INSTANTS - 1), now)
        assert len(filled.instants) == INSTANTS
        return [one.isoformat().replace("+00:00", "Z") for one in filled.instants]

    def _is_over(self, service: Service) -> bool:
        notices = outbox(service)
        is_sent = all(notice.status == "sent" for notice in notices)
        return is_sent and len(notices) >= INSTANTS * len(TARGETS) * len(EVENTS)

    def _note_death(self) -> None:
        """What is settled by now may not be sent again. What was claimed is free when the time of the claim is over."""
        with self._stage.service() as service:
            self._settled = {notice.key for notice in outbox(service) if notice.status == "sent"}
            let_claims_end(service)

    # -- what must hold

    def _wrong_notices(self, service: Service, received: list[Received]) -> Iterator[str]:
        arrived = Counter(one.key for one in received)
        for notice in outbox(service):
            times = arrived.pop(notice.key, 0)
            if times == 0:
                yield f"no_notice_is_lost: {notice.key} of run {notice.run_id} counts as sent, and never arrived"
            elif times > 1 and notice.key in self._settled:
                yield f"a_notice_is_settled_once: {notice.key} was settled as sent, and arrived {times} times"
            elif times > 2:
                yield f"a_notice_is_sent_again_after_a_death_alone: {notice.key} arrived {times} times"
        if arrived:
            yield f"only_notices_are_sent: {list(arrived)} arrived, and the outbox does not have them"
        expected = Counter({event: INSTANTS * len(TARGETS) for event in EVENTS})
        found = Counter({event: len({one.key for one in received if one.event == event}) for event in EVENTS})
        if found != expected:
            yield f"every_event_is_announced_once: {dict(found)} of {dict(expected)}"


def outbox(service: Service) -> list[NoticeRecord]:
    return service.reader.store.server_records.notices(limit=1000)


def wrong_instants(service: Service, instants: list[str]) -> Iterator[str]:
    """Each instant started one run."""
    found = Counter(_labels(service, run.run_id).get("schedule_instant", "") for run in runs_of(service))
    if found != Counter(instants):
        yield f"an_instant_starts_one_run: {dict(found)}, and the instants are {instants}"


def _labels(service: Service, run_id: int) -> Mapping[str, str]:
    first = next(iter(service.reader.events(run_id))).fact
    return first.labels if isinstance(first, e.RunStarted) else {}
