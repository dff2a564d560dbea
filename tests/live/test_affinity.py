"""Two hosts on one PostgreSQL, live: what belongs to an attempt runs where it ran, elsewhere only when that is gone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.runner import ROOM, ExecutionRecorder, Live, Ran

from mulligan.core.model import events as e
from mulligan.language import load
from mulligan.service.driving.local_worker import local_worker
from mulligan.service.runs.changes.prepared_runs import prepare

ELSEWHERE = Path(__file__).parent / "elsewhere.py"
# So long is a worker on another host believed to be alive that says nothing.
LEASE_SECONDS = 1.0

# Only the worker on the host 'far' has the label; what belongs to the attempt asks for nothing.
STAYS = """
name: stays
steps:
  - step: render
    shell: '[ $MULLIGAN_ATTEMPT -gt 1 ] || exit 7; exit 8'
    resources: {labels: [gpu]}
    retry: {rules: [{exit_codes: [7], max_retries: 1, recovery_script: 'true'}]}
    on_failure: [echo one, {shell: echo two, affinity: any}, {shell: exit 9, on_failure: echo three}]
    undo: echo undone
  - {step: after, needs: [render], shell: echo after, undo: echo undone, on_success: 'true'}
  - {step: broken, needs: [after], shell: exit 1}
"""
# The attempt takes its worker with it; on whose host, the name says.
LEAVES = """
name: leaves
steps:
  - step: render
    shell: kill -9 $(echo $MULLIGAN_WORKER | cut -d. -f2); sleep 60
    resources: {labels: [gpu]}
    on_lost: fail
    on_failure: echo mended
"""


@contextmanager
def worker_on(host: str, live: Live) -> Iterator[subprocess.Popen[str]]:
    """A worker in a process of its own, with the label 'gpu'."""
    command = [sys.executable, str(ELSEWHERE), host, str(LEASE_SECONDS), "gpu"]
    with subprocess.Popen(command, env=live.environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "serving\n"
            yield process
        finally:
            process.kill()


def run_near(live: Live, text: str) -> Ran:
    """Drive a run on the host 'near', which has no labels."""
    prepared = prepare(load(live.write("flow.yaml", text)), {}, live.folder)
    store = live.home.open(LEASE_SECONDS)
    try:
        with local_worker(
            live.home, store, ROOM, observer=ExecutionRecorder(), lease_seconds=LEASE_SECONDS, host="near"
        ) as driver:
            [run_id] = live.service.changes.create(prepared)
            return live.look(run_id, driver.drive(run_id))
    finally:
        store.close()


def hosts(ran: Ran) -> dict[str, str]:
    """Where each place was last started."""
    return {fact.place: fact.host for fact in ran.facts(e.AttemptStarted)}


def test_scripts_handlers_and_undos_run_on_the_host_of_the_attempt(live_server: Live):
    with worker_on("far", live_server):
        ran = run_near(live_server, STAYS)

    found = hosts(ran)
    bound = [
        "render",
        "render.script@1",
        "render.on_failure@2.0",
        "render.on_failure@2.2",
        "render.on_failure@2.2.on_failure@1.0",
        "render.undo@1",
    ]
    assert {place: found[place] for place in bound} == dict.fromkeys(bound, "far")
    assert found["after.on_success@1.0"] == found["after.undo@1"] == found["after"]
    assert (ran.status, ran.steps["render"]["output"]) == ("failed", "three")
    assert not any(fact.instead_of for fact in ran.facts(e.AttemptStarted))


def test_what_belongs_to_an_attempt_runs_elsewhere_when_its_host_is_gone_and_the_log_says_so(live_server: Live):
    with worker_on("far", live_server):
        ran = run_near(live_server, LEAVES)

    assert (ran.status, ran.steps["render"]["output"]) == ("completed", "mended")
    [handler] = ran.facts(e.AttemptStarted, place="render.on_failure@1.0")
    assert (handler.host, handler.instead_of) == ("near", "far")
    assert "render.on_failure@1.0: runs on near; far, where its earlier attempt ran, is gone" in ran.story
