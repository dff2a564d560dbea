"""A remote worker dies while it runs the steps of a run over HTTP; another one of its home goes on."""

from __future__ import annotations

from typing import Any

from mulligan.language import load
from mulligan.service import Service, TokenForm
from mulligan.service.run_control import prepare
from proof.crashes.faults import Fault
from proof.crashes.forked_processes import ForkedProcesses
from proof.crashes.outcome_checks import LAWS, TrialOutcome, complaints, nothing_lies_about, steady
from proof.crashes.served import ServedStage, expire_the_dead, has_ended
from proof.crashes.workflow import LABEL, LABELLED, written
from proof.stage import Stage

# A server keeps more in its home than a run does.
LAWS_OF_SERVERS = tuple(law for law in LAWS if law is not nothing_lies_about)


class RemoteTrial:
    """One run of everything: a worker beside the server drives it and runs nothing, the remote one runs its steps."""

    def __init__(self, stage: Stage, processes: ForkedProcesses, expected: dict[str, Any]) -> None:
        self._served = ServedStage(stage, processes)
        self._stage = stage
        # How the run ends undisturbed; empty for the run that shows it.
        self._expected = expected
        self.outcome: dict[str, Any] = {}

    def held(self, fault: Fault | None) -> tuple[bool, list[str]]:
        served = self._served
        file = written(self._stage, LABELLED)
        try:
            with self._stage.service() as service:
                token = service.tokens.create(TokenForm(user="builder", scopes=("worker",))).secret
                served.start("driver", "worker", "--parallel", "1")
                served.start("server", "--port", "0", "--no-worker", "--json", program="server")
                address = served.address()
                words = (
                    "worker",
                    "--server",
                    f"http://{address.host}:{address.port}",
                    "--parallel",
                    "2",
                    "--labels",
                    LABEL,
                )
                environment = {"MULLIGAN_TOKEN": token, "MULLIGAN_HOME": str(self._stage.folder / "elsewhere")}
                environment |= {"MULLIGAN_STORE": ""} if self._stage.home.store_url else {}
                served.start("remote", *words, fault=fault, environment=environment)
                # A step that no worker could run fails.
                served.wait_until(lambda: len(service.reader.store.workers()) == 2, "the remote worker does not join")
                run_id = self._start(service, file)
                served.wait_until(lambda: has_ended(service, run_id), f"run {run_id} does not end")
                # What the dead one had is given back when its lease is over.
                served.wait_until(
                    lambda: {worker.pid for worker in service.reader.store.workers()} <= served.pids,
                    "a dead worker is kept",
                )
                wrong = served.end()
                expire_the_dead(service)
                shown = service.show(run_id)
                self.outcome = steady(shown)
                after = TrialOutcome(self._stage, service, shown, self._expected or self.outcome)
                wrong += complaints(after, LAWS_OF_SERVERS)
        finally:
            served.kill()
        return served.has_happened, wrong

    def _start(self, service: Service, file: str) -> int:
        workflow = load(self._stage.folder / file)
        return service.start_once(prepare(workflow, {}, self._stage.folder), "everything")
