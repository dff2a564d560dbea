"""`mulligan run --parallel 0`: the process drives its run, and workers run the steps."""

from __future__ import annotations

import signal

from mulligan.core.model import events as e
from proof.stage import Stage, answered, heard, wait_until

from .three import THREE


def test_a_run_without_processors_leaves_its_steps_to_workers(server_stage: Stage) -> None:
    run = server_stage.start("run", server_stage.workflow(THREE), "--parallel", 0, "--json")
    with server_stage.service() as service:
        wait_until(lambda: service.reader.store.lists.holders(), lambda: f"nothing drives it: {run.poll()}")
    # Before there is a worker nothing starts.
    worker = server_stage.start("worker")
    name = heard(worker, " is up: ").split()[1]
    (server_stage.folder / "go").touch()

    code, shown, said = answered(run)

    worker.send_signal(signal.SIGTERM)
    worker.communicate()
    assert (code, shown["status"]) == (0, "completed"), said
    with server_stage.service() as service:
        facts = [entry.fact for entry in service.reader.events(1)]
    assert {fact.worker for fact in facts if isinstance(fact, e.AttemptStarted)} == {name}
