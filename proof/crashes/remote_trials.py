"""A remote worker dies while it runs the steps of a run over HTTP; another one of its home goes on."""

from __future__ import annotations

import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from mulligan.language.loading import load
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.server.tokens.tokens import TokenForm
from mulligan.service.service import Service
from proof.crashes.faults import Fault
from proof.crashes.forked_processes import ForkedProcesses
from proof.crashes.outcome_checks import LAWS, TrialOutcome, complaints, nothing_lies_about, steady
from proof.crashes.served import ServedStage, expire_the_dead, has_ended
from proof.crashes.workflow import LABEL, LABELLED, written
from proof.stage import Stage

# A server keeps more in its home than a run does.
LAWS_OF_SERVERS = tuple(law for law in LAWS if law is not nothing_lies_about)

# How large a small disk is, and how long it is full: about as long as the run takes.
DISK_BYTES, FULL_SECONDS = 4 << 20, 1.5


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
        elsewhere = self._stage.folder / "elsewhere"
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
                environment = {"MULLIGAN_TOKEN": token, "MULLIGAN_HOME": str(elsewhere)}
                environment |= {"MULLIGAN_STORE": ""} if self._stage.home.store_url else {}
                served.start("remote", *words, fault=fault, environment=environment)
                # A step that no worker could run fails.
                served.wait_until(lambda: len(service.reader.store.workers()) == 2, "the remote worker does not join")
                run_id = self._start(service, file)
                served.wait_until(lambda: self._has_ended(service, run_id), f"run {run_id} does not end")
                # What the dead one had is given back when its lease is over.
                served.wait_until(
                    lambda: {worker.pid for worker in service.reader.store.workers()} <= served.pids,
                    "a dead worker is kept",
                )
                wrong = served.end()
                expire_the_dead(service)
                shown = service.runs.show(run_id)
                self.outcome = steady(shown)
                after = TrialOutcome(self._stage, service, shown, self._expected or self.outcome)
                wrong += complaints(after, LAWS_OF_SERVERS)
        finally:
            served.kill()
        return served.has_happened, wrong

    def _has_ended(self, service: Service, run_id: int) -> bool:
        return has_ended(service, run_id)

    def _start(self, service: Service, file: str) -> int:
        workflow = load(self._stage.folder / file)
        return service.changes.start_once(prepare(workflow, {}, self._stage.folder), "everything")[0]


class FullDiskTrial(RemoteTrial):
    """The same with the home of the remote worker on a small disk, which is full for a while, and nobody dies."""

    def held(self, fault: Fault | None) -> tuple[bool, list[str]]:
        self._disk = self._stage.folder / "elsewhere"
        self._begun_at_least = fault.nth if fault is not None else None
        self._full_until: float | None = None
        self._disk.mkdir()
        subprocess.run(_mounting(self._disk), check=True)
        try:
            _, wrong = super().held(None)
        finally:
            subprocess.run(("umount", "--lazy", self._disk), check=True)
        return self._full_until is not None, wrong

    def _has_ended(self, service: Service, run_id: int) -> bool:
        if self._full_until is not None and time.monotonic() > self._full_until:
            (self._disk / "filler").unlink(missing_ok=True)
        elif self._full_until is None and self._begun_at_least is not None:
            begun = sum(line.verb == "start" for line in self._stage.lines())
            if begun >= self._begun_at_least:
                fill(self._disk / "filler")
                self._full_until = time.monotonic() + FULL_SECONDS
        return super()._has_ended(service, run_id)


def fill(filler: Path) -> None:
    """Not a byte is left on the disk of this file."""
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    file.write(b"\0" * size)


def can_mount() -> bool:
    """Whether a small disk can be put up here."""
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(_mounting(Path(folder)), capture_output=True, check=False).returncode:
            return False
        subprocess.run(("umount", "--lazy", folder), check=True)
    return True


def _mounting(folder: Path) -> tuple[str | Path, ...]:
    return ("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "none", folder)
