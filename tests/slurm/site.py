"""What a user has on a cluster: a folder that all nodes see, a store, and the commands of Slurm and Mulligan."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.private_slurm import Job, PrivateSlurm, SlurmRefused, wait_until

from mulligan.core.model import events as e
from mulligan.worker.supervisor.processes import environment_of, send_signal, snapshot
from proof.stage import Stage, answered

# Tasks that ask for it run in jobs, and never in the process that starts the run.
LABEL = "pilot"


class Site:
    def __init__(self, slurm: PrivateSlurm, folder: Path, store_url: str) -> None:
        self.slurm = slurm
        # Slurm remembers the jobs of other tests.
        self._jobs_before = {job.id for job in slurm.jobs()}
        self._processes: list[subprocess.Popen[str]] = []
        self.stage = Stage(folder, store_url)
        self.stage.environment |= slurm.environ
        # Nothing of the user's own: no profiles, no files about earlier pilots.
        self.stage.environment |= {"XDG_CONFIG_HOME": f"{folder}/config", "XDG_STATE_HOME": f"{folder}/state"}
        # A tenth of the usual lease: all other times of a worker derive from it.
        self.stage.environment["MULLIGAN_LEASE"] = "3s"

    @property
    def program(self) -> list[str]:
        return [sys.executable, "-m", "mulligan"]

    @property
    def folder(self) -> Path:
        return self.stage.folder

    def worker_job(self, *options: str, worker: str = "", cpus: int = 8) -> str:
        """The id of a new job whose script becomes a worker."""
        script = f"exec {shlex.quote(sys.executable)} -m mulligan worker --labels {LABEL} {worker}"
        options = (f"--cpus-per-task={cpus}", "--job-name=pilot", *options)
        return self.slurm.submit(script, *options, environ=self.stage.environment, cwd=self.folder)

    def said_by(self, job_id: str) -> str:
        """What a worker of `worker_job` wrote."""
        file = self.folder / f"pilot-{job_id}.out"
        return file.read_text() if file.exists() else ""

    def profile(self, text: str, name: str = "default") -> None:
        """Add a profile to the file of profiles in this folder."""
        with (self.folder / "mulligan.toml").open("a") as file:
            file.write(f"[slurm.{name}]\n{text}\n")

    def pilots(self) -> list[dict[str, Any]]:
        """What `mulligan slurm status` says about pilots that wait or run."""
        return [one for one in self.mulligan("slurm", "status")["pilots"] if one["is_active"]]

    def wait_for_state(self, job_id: str, *states: str, seconds: float = 60) -> None:
        wait_until(lambda: self.slurm.job(job_id).state in states, f"job {job_id} is not {states}", seconds)

    def wait_until_up(self, job_id: str) -> None:
        wait_until(lambda: " is up: " in self.said_by(job_id), f"the worker of job {job_id} is not up")

    def start(self, *words: object) -> subprocess.Popen[str]:
        """A command on the login node; it ends with the test at the latest."""
        process = self.stage.start(*words)
        self._processes.append(process)
        return process

    def jobs(self) -> list[Job]:
        """The jobs of this test that Slurm remembers, ended or not. Those of an array that wait are one job."""
        return [job for job in self.slurm.jobs() if job.id not in self._jobs_before]

    def close(self) -> None:
        """End what was started for this test, here or in a job."""
        mark = bytes(self.folder)
        while found := [one for one in snapshot().values() if environment_of(one.pid).get(b"STAGE") == mark]:
            send_signal(found, signal.SIGKILL)
        for process in self._processes:
            process.communicate()

    def mulligan(self, *words: object) -> Any:
        """What a command says with --json."""
        code, shown, said = answered(self.start(*words, "--json"))
        assert code == 0, said
        return shown

    def answer(self, process: subprocess.Popen[str]) -> tuple[int, Any, str]:
        """How a command ended, what it printed as JSON, and what it said."""
        return answered(process)

    def queued_tasks(self) -> int:
        """How many tasks wait for a worker."""
        with self.stage.service() as service:
            return sum(shape.count for shape in service.reader.store.queued_shapes())

    def wait_for_lines(self, verb: str, count: int, seconds: float = 60) -> None:
        """Wait until the steps have written so many lines to the journal."""
        wait_until(lambda: self.count(verb) >= count, f"no {count} lines of '{verb}'", seconds)

    def count(self, verb: str) -> int:
        return sum(line.verb == verb for line in self.stage.lines())

    def facts(self, run_id: int, kind: type[e.Fact]) -> list[Any]:
        with self.stage.service() as service:
            return [entry.fact for entry in service.reader.events(run_id) if isinstance(entry.fact, kind)]

    def evidence(self) -> list[tuple[str, str]]:
        """What there is to read when a test has failed."""
        files = [*sorted(self.folder.glob("*.out")), *sorted((self.folder / "home" / "slurm").glob("*.out"))]
        written = [(file.name, file.read_text()) for file in files]
        try:
            jobs = [(f"job {job.id}", f"{job.state} {job.fields}") for job in self.jobs()]
        except SlurmRefused as error:
            jobs = [("jobs", str(error))]
        return [*written, *jobs, ("journal", self.stage.journal.read_text()), ("Slurm", self.slurm.logs())]


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What `mulligan run --json` shows when the run has completed."""
    code, shown, said = answered(process)
    assert code == 0, said
    assert shown["status"] == "completed", json.dumps(shown, indent=2)
    return shown
