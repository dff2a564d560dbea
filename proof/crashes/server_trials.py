"""A server that dies while a client starts runs and changes them; the client asks again."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator

from mulligan.core.model import events as e
from mulligan.ports import RunRecord
from mulligan.service.server.notices.targets import sign
from mulligan.service.service import Service
from proof.crashes.faults import Fault
from proof.crashes.forked_processes import ForkedProcesses
from proof.crashes.outcome_checks import (
    TrialOutcome,
    complaints,
    every_result_was_worked_for,
    no_lock_is_held,
    nothing_overlapped,
    nothing_runs_on,
    nothing_was_done_twice,
    the_file_is_sound,
    the_logs_keep_the_promises,
    the_logs_replay_to_the_tables,
    the_store_keeps_nothing_of_the_past,
)
from proof.crashes.served import ServedStage, has_ended, runs_of
from proof.stage import Stage

# One workflow for each thing that is asked of a server. Steps of a server's runs work in the folder `work` of its home.
FLOWS = {
    "plain": "steps: [{step: work, shell: 'sh $ACT plain'}]",
    "asked": "steps: [{step: gate, approve: {message: 'ok?'}}, {step: store, needs: [gate], shell: 'sh $ACT store'}]",
    "parked": (
        "steps: [{step: judge, triage: true, shell: 'sh $ACT judge; test -e judged || { touch judged; exit 4; }'}]"
    ),
    "waiting": "steps: [{step: rest, wait: 1h}, {step: never, needs: [rest], shell: 'sh $ACT never'}]",
    "broken": "steps: [{step: load, shell: 'sh $ACT load; test -e repaired'}]",
}
# Started by a webhook, to which another one sends the event that it waits for.
HOOKED = "hooked"
HOOKED_FLOW = "steps: [{step: paid, wait: {event: paid}}, {step: send, needs: [paid], shell: 'sh $ACT hooked'}]"
SECRET = "a secret of the trials"
WEBHOOKS = {
    "order": {"secret": "shop", "start": {"workflow": HOOKED, "labels": {"order": "${body.order}"}}},
    "paid": {"secret": "shop", "send": {"event": "paid", "labels": {"order": "${body.order}"}}},
}
ENDS = {
    HOOKED: "completed",
    "plain": "completed",
    "asked": "completed",
    "parked": "completed",
    "waiting": "cancelled",
    "broken": "completed",
}
# What the log of a run has of each thing that was asked of it: once.
CHANGES: dict[str, tuple[type[e.Fact], str]] = {
    HOOKED: (e.EventReceived, "/hooks/paid"),
    "asked": (e.AttemptSucceeded, "runs/{run_id}/steps/gate:approve"),
    "parked": (e.StepClassified, "decisions"),
    "waiting": (e.RunStopping, "runs/{run_id}:cancel"),
    "broken": (e.RunReopened, "runs/{run_id}:retry"),
}
LAWS = (
    the_logs_keep_the_promises,
    the_logs_replay_to_the_tables,
    nothing_was_done_twice,
    every_result_was_worked_for,
    nothing_overlapped,
    nothing_runs_on,
    no_lock_is_held,
    the_store_keeps_nothing_of_the_past,
    the_file_is_sound,
)


class ServerTrial:
    """One client, from its first workflow to the end of its last run."""

    def __init__(self, stage: Stage, processes: ForkedProcesses) -> None:
        self._served = ServedStage(stage, processes)
        self._stage = stage
        # The ids that were answered to each start.
        self._answered: dict[str, set[int]] = {flow: set() for flow in (*FLOWS, HOOKED)}
        # What was changed without a row in the audit when the server died.
        self._unaudited: list[str] = []
        self._served.died = self._note_death

    def held(self, fault: Fault | None) -> tuple[bool, list[str]]:
        served = self._served
        try:
            with self._stage.service() as service:
                # The tables exist before any process connects.
                assert service.reader.runs(limit=1) == []
                served.start("worker", "worker", "--parallel", "2")
                words = ("--port", "0", "--no-worker", "--json", "--config", self._configure())
                served.start("server", *words, program="server", fault=fault)
                self._ask_for_everything(service)
                wrong = served.end()
                wrong += complaints(TrialOutcome(self._stage, service, {}, {}, has_askers=True), LAWS)
                wrong += self._wrong_runs(service)
                wrong += [*self._unaudited, *wrong_audit(service)]
        finally:
            served.kill()
        return served.has_happened, wrong

    # -- the client

    def _ask_for_everything(self, service: Service) -> None:
        served = self._served
        for flow, text in FLOWS.items():
            served.change("PUT", f"workflows/{flow}", {"text": f"name: {flow}\n{text}\n"})
        ids = {flow: self._start(flow) for flow in FLOWS}
        self._wait_for_person(service, ids["asked"], "gate")
        served.change("POST", f"runs/{ids['asked']}/steps/gate:approve", {"reason": "it may"})
        self._wait_for_person(service, ids["parked"], "judge")
        decision = {"run_id": ids["parked"], "step": "judge", "verdict": "retry", "reason": "again", "attempt": 1}
        served.change("POST", "decisions", {"decisions": [decision]})
        served.change("POST", f"runs/{ids['waiting']}:cancel", {"reason": "enough"})
        self._wait_for_end(service, ids["broken"])
        (self._stage.home.folder / "work" / "repaired").touch()
        served.change("POST", f"runs/{ids['broken']}:retry", {"reason": "repaired"})
        for run_id in ids.values():
            self._wait_for_end(service, run_id)
        for flow in FLOWS:
            self._start(flow)
        self._deliver_everything(service)

    def _configure(self) -> str:
        """Where the secret of the webhooks is."""
        folder = self._stage.folder
        (folder / "shop.key").write_text(SECRET)
        (folder / "server.toml").write_text(f'[webhook_secrets]\nshop = {{file = "{folder}/shop.key"}}\n')
        return str(folder / "server.toml")

    def _deliver_everything(self, service: Service) -> None:
        """What a program outside sends to webhooks, each delivery once more when all is over."""
        self._served.change("PUT", f"workflows/{HOOKED}", {"text": f"name: {HOOKED}\n{HOOKED_FLOW}\n"})
        for name, webhook in WEBHOOKS.items():
            self._served.change("PUT", f"webhooks/{name}", webhook)
        (run_id,) = self._deliver("order")
        self._deliver("paid")
        self._wait_for_end(service, run_id)
        self._deliver("order")

    def _deliver(self, name: str) -> list[int]:
        body, now = {"order": "7"}, int(time.time())
        signed = sign([SECRET.encode()], f"msg_{name}", now, json.dumps(body).encode())
        headers = {"webhook-id": f"msg_{name}", "webhook-timestamp": str(now), "webhook-signature": signed}
        _, answer = self._served.change("POST", f"/hooks/{name}", body, headers=headers)
        self._answered[HOOKED].update(answer["run_ids"])
        return list(answer["run_ids"])

    def _start(self, flow: str) -> int:
        _, answer = self._served.change("POST", "runs", {"workflow": flow}, key=f"start {flow}")
        self._answered[flow].add(answer["run_id"])
        return int(answer["run_id"])

    def _wait_for_person(self, service: Service, run_id: int, step: str) -> None:
        """Until the run asks for somebody; or, if that was answered, until nobody is asked."""

        def is_asked() -> bool:
            waiting = {(one.run_id, one.place) for one in service.reader.store.waiting_places()}
            return (run_id, step) in waiting or has_ended(service, run_id)

        self._served.wait_until(is_asked, f"run {run_id} does not come to '{step}'")

    def _wait_for_end(self, service: Service, run_id: int) -> None:
        self._served.wait_until(lambda: has_ended(service, run_id), f"run {run_id} does not end")

    # -- what must hold

    def _wrong_runs(self, service: Service) -> Iterator[str]:
        runs = runs_of(service)
        for flow, count in Counter(run.workflow for run in runs).items():
            if count > 1 or len(self._answered[flow]) > 1:
                yield f"one_key_is_one_run: '{flow}' has {count} runs, and its client was told {self._answered[flow]}"
        for flow in self._answered.keys() - {run.workflow for run in runs}:
            yield f"one_key_is_one_run: '{flow}' was accepted and has no run"
        for run in runs:
            if run.status != ENDS[run.workflow]:
                yield f"the_outcome_is_as_undisturbed: run {run.run_id} of '{run.workflow}' is {run.status}"
            if run.workflow in CHANGES and (made := changes_made(service, run)) != 1:
                yield f"a_change_is_made_once: the change of '{run.workflow}' is {made} times in its log"

    def _note_death(self) -> None:
        """What is changed by now is in the audit by now: asked again, the client would get a row in any case."""
        with self._stage.service() as service:
            self._unaudited = list(wrong_audit(service))


def changes_made(service: Service, run: RunRecord) -> int:
    """How often the log of a run says that it was changed as its client asked."""
    kind, _ = CHANGES[run.workflow]
    facts = [entry.fact for entry in service.reader.events(run.run_id) if isinstance(entry.fact, kind)]
    # Of the approval: its own success, not that of the step behind it.
    return sum(getattr(fact, "place", "gate") == "gate" for fact in facts) if run.workflow == "asked" else len(facts)


def wrong_audit(service: Service) -> Iterator[str]:
    """Whatever was changed has its row, and so has each run."""
    rows = service.audit.page(project=None, limit=1000).audit
    accepted = Counter(row.target.partition("?")[0] for row in rows if row.status < 300)
    runs = runs_of(service)
    for run in runs:
        if run.workflow in CHANGES and changes_made(service, run):
            path = CHANGES[run.workflow][1].format(run_id=run.run_id)
            path = path if path.startswith("/") else f"/api/v1/{path}"
            if not accepted[path]:
                yield f"a_change_is_in_the_audit: {path} has no row"
    for path, is_hooked in (("/api/v1/runs", False), ("/hooks/order", True)):
        count = sum((run.workflow == HOOKED) == is_hooked for run in runs)
        if accepted[path] < count:
            yield f"a_change_is_in_the_audit: {count} runs have {accepted[path]} rows"
