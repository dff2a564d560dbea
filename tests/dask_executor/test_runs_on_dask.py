"""Runs whose steps run on a Dask cluster: what comes back, and what is left when something dies."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.dask_executor.cluster_processes import Process, Processes

import mulligan
from mulligan.worker.supervisor import processes as worker_processes

# A certificate for this host, which signs itself, and its key.
CERTIFICATE = Path(__file__).parents[1] / "worker" / "loopback.pem"
PATIENCE_SECONDS = 40.0
LOOK_SECONDS = 0.01


def wait_until(fact: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
    until = time.monotonic() + seconds
    while not (found := fact()):
        assert time.monotonic() < until, "it never came true"
        time.sleep(LOOK_SECONDS)
    return found


class Driver:
    """`mulligan` in a folder, with the home `.mulligan` there."""

    def __init__(self, processes: Processes, folder: Path, *words: str) -> None:
        self.folder = folder
        (folder / "code.txt").unlink(missing_ok=True)
        self.process = processes.mulligan(folder, *words)

    def end(self) -> tuple[int, str]:
        wait_until((self.folder / "code.txt").exists)
        return int((self.folder / "code.txt").read_text()), (self.folder / "output.txt").read_text()


def on(scheduler: Process) -> str:
    return scheduler.address.replace("tcp://", "dask://")


def write(folder: Path, text: str) -> None:
    (folder / "flow.yaml").write_text(text, encoding="utf-8")


def facts(processes: Processes, folder: Path, kind: str) -> list[dict[str, Any]]:
    """The facts of this type in the log of run 1."""
    _, said = Driver(processes, folder, "events", "1", "--json").end()
    found = (json.loads(line)["fact"] for line in said.splitlines())
    return [fact for fact in found if fact["type"] == kind]


def leftovers(folder: Path) -> list[int]:
    """The processes of tasks that run in this folder."""
    return [process.pid for process in worker_processes.find_with_variable(b"DASKTEST_FOLDER", str(folder).encode())]


FLOW = """
name: everything
secrets:
  word: {env: DASKTEST_SECRET}
steps:
  - step: shell
    shell: echo to stdout; echo to stderr >&2; echo "the word is ${secrets.word}"
  - step: large
    python: |
      import mulligan
      def main():
          mulligan.progress(3, 4, "nearly")
          with open("table.txt", "w") as file:
              file.write("a table")
          mulligan.artifact("table.txt")
          return "x" * 200_000
  - step: reads
    needs: [large]
    args: {text: "${steps.large.output}"}
    python: |
      def main(text):
          print("got", len(text))
          return len(text)
  - step: each
    map: {over: "${[1, 2, 3]}"}
    do:
      - shell: echo item ${item}
outputs:
  length: ${steps.reads.output}
"""


def test_outputs_artifacts_and_logs_come_back_and_secrets_do_not(
    processes: Processes, scheduler: Process, folder: Path
) -> None:
    write(folder, FLOW)

    code, said = Driver(processes, folder, "run", "flow.yaml", "--on", on(scheduler)).end()

    assert code == 0, said
    assert '"length": 200000' in said
    logs = {path.name: path.read_text() for path in (folder / ".mulligan/runs/1/logs").iterdir()}
    assert logs["shell#1.out"].startswith("to stdout\nthe word is ")
    assert logs["shell#1.err"] == "to stderr\n"
    assert '"text":"nearly"' in logs["large#1.progress"]
    assert logs["reads#1.out"] == "got 200000\n"
    assert "swordfish" not in "".join(logs.values())
    kept = [path.read_bytes() for path in (folder / ".mulligan/artifacts").rglob("*") if path.is_file()]
    assert b"a table" in kept and b"x" * 200_000 in kept


PROGRAM = """
import os, signal
from pathlib import Path

from mulligan import program, step


@step
def note(text: str) -> int:
    with open("notes", "a") as notes:
        notes.write(text)
    return 2**63 + len(text)


@program
def replayed():
    found = note("before ")
    if not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    note("after")
    return found
"""


def test_a_program_goes_on_in_another_process(processes: Processes, scheduler: Process, folder: Path) -> None:
    (folder / "flow.py").write_text(PROGRAM, encoding="utf-8")

    code, said = Driver(processes, folder, "run", "flow.py", "--on", on(scheduler)).end()

    assert code == 0, said
    assert f'"result": {2**63 + 7}' in said
    assert (folder / "notes").read_text() == "before after"


SLEEPS = """
name: sleeps
steps:
  - step: nap
    env: {DASKTEST_FOLDER: "TMP"}
    shell: echo started $$ >> naps; sleep 600 & sleep 600
"""


def start_nap(processes: Processes, folder: Path, scheduler: Process, text: str = SLEEPS) -> Driver:
    """A run with a task that sleeps."""
    write(folder, text.replace("TMP", str(folder)))
    driver = Driver(processes, folder, "run", "flow.yaml", "--on", on(scheduler))
    wait_until(lambda: (folder / "naps").exists() or (folder / "code.txt").exists())
    assert (folder / "naps").exists(), (folder / "output.txt").read_text()
    wait_until(lambda: len(leftovers(folder)) >= 3)
    return driver


def test_a_killed_dask_worker_leaves_nothing_and_its_task_runs_once_more_elsewhere(
    processes: Processes, own_scheduler: Process, own_worker: Callable[..., Process], folder: Path
) -> None:
    # By default Dask runs the tasks of a lost worker again, three times: not ours, which are none of its tasks.
    first = own_worker(name="first")
    driver = start_nap(processes, folder, own_scheduler, SLEEPS.replace("& sleep 600", "& [ -e ended ] || sleep 600"))

    (folder / "ended").touch()
    first.kill()
    wait_until(lambda: not leftovers(folder))
    own_worker(name="second")
    code, said = driver.end()

    assert code == 0, said
    assert len((folder / "naps").read_text().splitlines()) == 2
    (lost,) = facts(processes, folder, "attempt.lost")
    assert first.address in lost["worker"]


def test_a_dask_worker_that_says_nonsense_gets_no_more_tasks_and_its_task_runs_elsewhere(
    processes: Processes, own_scheduler: Process, own_worker: Callable[..., Process], folder: Path
) -> None:
    liar = own_worker(report='{"type": "nonsense"}')
    write(folder, "name: one\nsteps:\n  - step: a\n    shell: echo ran >> ran\n")

    driver = Driver(processes, folder, "run", "flow.yaml", "--on", on(own_scheduler))
    wait_until((folder / "ran").exists)
    own_worker()
    code, said = driver.end()

    assert code == 0, said
    assert (folder / "ran").read_text() == "ran\n" * 2
    assert f"the Dask worker at {liar.address} sent what cannot be understood" in said
    assert "Traceback" not in said
    assert [fact["attempt"] for fact in facts(processes, folder, "attempt.lost")] == [1]


def test_a_retired_dask_worker_interrupts_its_tasks_and_they_run_elsewhere(
    processes: Processes, own_scheduler: Process, own_worker: Callable[..., Process], folder: Path
) -> None:
    first = own_worker(name="first")
    driver = start_nap(processes, folder, own_scheduler, SLEEPS.replace("& sleep 600", "& [ -e ended ] || sleep 600"))

    (folder / "ended").touch()
    own_worker(name="second")
    processes.retire(own_scheduler, first)
    code, said = driver.end()

    assert code == 0, said
    assert len(facts(processes, folder, "attempt.interrupted")) == 1
    assert facts(processes, folder, "attempt.lost") == []
    assert len((folder / "naps").read_text().splitlines()) == 2


def test_a_driver_waits_for_a_scheduler_that_is_gone_and_goes_on_with_the_next_one(
    processes: Processes, folder: Path
) -> None:
    scheduler = processes.scheduler()
    processes.worker(scheduler)
    driver = start_nap(processes, folder, scheduler, SLEEPS.replace("& sleep 600", "& [ -e ended ] || sleep 600"))

    (folder / "ended").touch()
    scheduler.kill()
    wait_until(lambda: "no Dask scheduler answers at" in (folder / "output.txt").read_text())
    wait_until(lambda: not leftovers(folder))
    port = int(scheduler.address.rpartition(":")[2])
    after = processes.scheduler(port=port)
    processes.worker(after)
    code, said = driver.end()
    after.kill()

    assert code == 0, said
    assert len((folder / "naps").read_text().splitlines()) == 2


def test_a_killed_driver_leaves_nothing_and_another_goes_on(
    processes: Processes, scheduler: Process, folder: Path
) -> None:
    driver = start_nap(processes, folder, scheduler, SLEEPS.replace("& sleep 600", "& [ -e ended ] || sleep 600"))

    os.kill(driver.process.pid, signal.SIGKILL)
    # Both write their exit code to the same file.
    assert driver.end()[0] == -signal.SIGKILL
    wait_until(lambda: not leftovers(folder))
    (folder / "ended").touch()
    code, said = Driver(processes, folder, "resume", "1").end()

    assert code == 0, said
    assert len((folder / "naps").read_text().splitlines()) == 2


def test_a_cancelled_task_ends_within_its_grace_and_leaves_nothing(
    processes: Processes, scheduler: Process, folder: Path
) -> None:
    driver = start_nap(processes, folder, scheduler)
    (folder / "other").mkdir()

    Driver(processes, folder / "other", "cancel", "1", "--home", str(folder / ".mulligan")).end()
    wait_until(lambda: not leftovers(folder))
    code, said = driver.end()

    assert code == 3, said


def test_a_step_that_no_dask_worker_is_large_enough_for_fails_and_the_others_run(
    processes: Processes, scheduler: Process, folder: Path
) -> None:
    write(
        folder,
        """
steps:
  - step: labelled
    resources: {labels: [big, first]}
    shell: "true"
  - step: large
    resources: {cpus: 3}
    shell: "true"
    continue_on_error: true
""",
    )

    code, said = Driver(processes, folder, "run", "flow.yaml", "--on", on(scheduler)).end()

    assert code == 0, said
    (failed,) = facts(processes, folder, "attempt.failed")
    assert failed["failure"]["code"] == "NO_CAPACITY"
    assert "3 cpus (the largest Dask worker has 2)" in failed["failure"]["message"]


WITH_CLIENT = """
steps:
  - step: sums
    on: {dask: true}
    args: {count: 4}
    python: |
      def main(count, client):
          return sum(client.gather(client.map(lambda number: number * number, range(count), pure=False)))
outputs: {sum: "${steps.sums.output}"}
"""


def test_what_cannot_be_used_is_refused_before_anything_is_stored(
    processes: Processes, scheduler: Process, folder: Path
) -> None:
    write(folder, "steps:\n  - {step: a, shell: 'true'}\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
    worker = processes.worker(scheduler)

    refused = {
        address: Driver(processes, folder, "run", "flow.yaml", "--on", address).end()
        for address in ("dask://nowhere", f"dask://127.0.0.1:{port}", f"tls://127.0.0.1:{port}", worker.address)
    }
    worker.kill()

    assert [code for code, _ in refused.values()] == [2, 1, 2, 2]
    assert [said.splitlines()[0] for _, said in refused.values()] == [
        "error[input.invalid]: 'dask://nowhere' is not the address of a Dask scheduler",
        f"error[cluster.unavailable]: no Dask scheduler answers at tcp://127.0.0.1:{port}: Connection refused",
        f"error[cluster.refused]: 'tls://127.0.0.1:{port}' needs TLS, and Dask's configuration names no certificates",
        f"error[cluster.refused]: {worker.address} is not a Dask scheduler",
    ]
    assert not list((folder / ".mulligan").glob("runs/*"))


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0.0.1", f"has Mulligan 0.0.1 (here: {mulligan.__version__})"),
        ("", "cannot load Mulligan: import of mulligan.dask_executor.dask_worker halted; None in sys.modules"),
    ],
)
def test_a_dask_worker_with_another_version_is_refused_before_anything_runs(
    processes: Processes,
    own_worker: Callable[..., Process],
    own_scheduler: Process,
    folder: Path,
    version: str,
    said: str,
) -> None:
    write(folder, "steps:\n  - {step: a, shell: 'true'}\n")
    worker = own_worker(version=version)

    code, shown = Driver(processes, folder, "run", "flow.yaml", "--on", on(own_scheduler)).end()

    assert code == 2
    assert shown.splitlines()[0] == f"error[cluster.refused]: the Dask worker at {worker.address} {said}"


def test_a_step_that_takes_all_processors_uses_the_cluster_through_a_client_with_the_tls_of_dasks_configuration(
    processes: Processes, folder: Path
) -> None:
    write(folder, WITH_CLIENT)
    keys = ("ca-file", *(f"{who}.{what}" for who in ("scheduler", "worker", "client") for what in ("cert", "key")))
    processes.settings = {f"distributed.comm.tls.{key}": str(CERTIFICATE) for key in keys}
    try:
        scheduler = processes.scheduler(protocol="tls")
        processes.worker(scheduler, protocol="tls", nthreads=1)
        code, said = Driver(processes, folder, "run", "flow.yaml", "--on", scheduler.address).end()
    finally:
        processes.settings = {}
    scheduler.kill()
    refused, why = Driver(processes, folder, "run", "flow.yaml").end()

    assert scheduler.address.startswith("tls://")
    assert code == 0, said
    assert '"sum": 14' in said
    assert refused == 2
    assert why.splitlines()[0] == (
        "error[input.invalid]: step 'sums' says 'on: {dask: true}', and the run has no Dask cluster"
    )


RAISES = """
name: raises
steps:
  - step: a
    python: |
      import os
      class Refused(ConnectionError): pass
      def main():
          if os.environ["MULLIGAN_ATTEMPT"] == "1":
              raise Refused("once")
    retry: {exceptions: [ConnectionError], max_retries: 1}
"""


def test_a_rule_for_a_class_matches_what_is_raised_on_the_cluster(
    processes: Processes, scheduler: Process, folder: Path
) -> None:
    write(folder, RAISES)

    code, said = Driver(processes, folder, "run", "flow.yaml", "--on", on(scheduler)).end()

    assert code == 0, said
    (failed,) = facts(processes, folder, "attempt.failed")
    assert failed["failure"]["exceptions"][:2] == ["__main__.Refused", "ConnectionError"]
