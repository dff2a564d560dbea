"""Three workers on PostgreSQL, killed and stopped at random: every run ends once, and nothing is lost or done twice.

What happens to whom is drawn from a seed; when it happens is steered by what the logs say, not by a clock.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mulligan.core.model import events as e
from mulligan.core.model.workflow import RERUNS_AFTER_LOSS_MAX
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import RunFinished
from mulligan.language import load
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.service import Service
from mulligan.worker.supervisor.processes import send_signal, snapshot
from proof.crashes.command_server import lose_connections
from proof.stage import Stage, wait_until

# So long that a worker renews it in time on a machine that has much else to do.
LEASE_SECONDS = 4.0
WORKERS = 3
RUNS = 20
# With the child runs, of which there is one more for each that was lost.
RUNS_MAX = 1000
# About as many entries as the logs of an undisturbed run and its child have.
ENTRIES_PER_RUN = 100

# A retry, a handler, a map, a python step, a child run, a repair. Each says under which lease it was done.
MIXED = """
name: mixed
steps:
  - step: fetch
    shell: 'sh $ACT fetch 0.05; test -e "cleared-$MULLIGAN_RUN_ID" || exit 7; echo $MULLIGAN_FENCE'
    retry:
      rules: [{exit_codes: [7], max_retries: 1, delay: 50ms, recovery_script: 'touch "cleared-$MULLIGAN_RUN_ID"'}]
  - step: check
    needs: [fetch]
    map: {over: '${[1, 2, 3]}', as: n, max_parallel: 2}
    do: [{shell: 'sh $ACT check 0.1; echo $MULLIGAN_FENCE'}]
  - step: build
    needs: [fetch]
    shell: 'sh $ACT build; exit 3'
    on_failure: 'sh $ACT rebuild 0.02; echo $MULLIGAN_FENCE'
  - {step: child, needs: [fetch], workflow: {file: child.yaml}}
  - {step: count, needs: [fetch], python: 'def main(word): return len(word)', args: {word: abc}}
  - step: deploy
    needs: [check, build, child, count]
    shell: 'sh $ACT deploy; test -e "repaired-$MULLIGAN_RUN_ID" || exit 9; echo $MULLIGAN_FENCE'
    next: [{to: repair, on: failure, then: rerun}]
  - {step: repair, shell: 'sh $ACT repair; touch "repaired-$MULLIGAN_RUN_ID"'}
"""
CHILD = """
name: child
steps:
  - {step: fetch, shell: 'sh $ACT fetch; echo $MULLIGAN_FENCE'}
  - {step: deploy, needs: [fetch], shell: 'sh $ACT deploy 0.02; echo $MULLIGAN_FENCE'}
"""
# The commands that print their lease, by the end of their places.
PRINTS_ITS_LEASE = ("fetch", "deploy", "].0", ".on_failure@1.0")


class Fleet:
    """Workers, of which one that dies is replaced."""

    def __init__(self, stage: Stage, service: Service) -> None:
        self.stage = stage
        self.service = service
        self.workers: list[subprocess.Popen[str]] = []
        self.cancelled: set[int] = set()

    def fill(self) -> None:
        with (self.stage.folder / "said").open("a") as said:
            while len(self.workers) < WORKERS:
                self.workers.append(self.stage.start_program("-m", "proof.serving", LEASE_SECONDS, stderr=said))

    # -- what can happen to one of them

    def kill(self, worker: subprocess.Popen[str]) -> None:
        """kill -9."""
        worker.kill()
        self._replace(worker)

    def kill_with_supervisor(self, worker: subprocess.Popen[str]) -> None:
        """Both at once: nobody is left to end what they ran."""
        worker.send_signal(signal.SIGSTOP)
        for pid in children_of(worker.pid):
            os.kill(pid, signal.SIGKILL)
        worker.kill()
        self._replace(worker)

    def stop_shortly(self, worker: subprocess.Popen[str]) -> None:
        """Until the others have written something: mostly it is not missed."""
        before = self.written()
        with stopped(worker.pid):
            self._wait(lambda: self.written() > before)

    def stop_until_buried(self, worker: subprocess.Popen[str]) -> None:
        """All it had is void when it wakes."""
        name = self._name(worker)
        with stopped(worker.pid):
            self._wait(lambda: name not in self.known())

    def stop_with_supervisor(self, worker: subprocess.Popen[str]) -> None:
        """What it runs goes on, and nobody is there to end it in time."""
        name = self._name(worker)
        with stopped(worker.pid, *children_of(worker.pid)):
            self._wait(lambda: name not in self.known())

    def lose_connections(self, worker: subprocess.Popen[str]) -> None:
        """Of all of them, at once."""
        lose_connections(self.stage.home.store_url)

    def cancel_a_run(self, worker: subprocess.Popen[str]) -> None:
        """The oldest that nobody has cancelled, wherever it is driven."""
        run_ids = {run.run_id for run in self.unfinished() if run.parent_run_id is None} - self.cancelled
        if run_ids:
            self.cancelled.add(min(run_ids))
            with suppress(RunFinished):
                self.service.changes.cancel(min(run_ids))

    def _replace(self, worker: subprocess.Popen[str]) -> None:
        worker.communicate()
        self.workers.remove(worker)
        self.fill()

    def _wait(self, is_true: Callable[[], bool]) -> None:
        wait_until(lambda: is_true() or self.is_done(), "the others did not go on")

    # -- what can be seen of them

    def known(self) -> dict[str, int]:
        """Those that are not buried, with their processes."""
        return {worker.name: worker.pid for worker in self.service.reader.store.workers()}

    def _name(self, worker: subprocess.Popen[str]) -> str:
        """Its name now: one that was buried comes back under a new one."""
        return wait_until(lambda: {pid: name for name, pid in self.known().items()}.get(worker.pid, ""), "it is gone")

    def written(self) -> int:
        """How many entries all logs have."""
        return sum(run.seq for run in self.service.reader.runs(limit=RUNS_MAX))

    def unfinished(self) -> list[Any]:
        return [run for run in self.service.reader.runs(limit=RUNS_MAX) if run.status not in RUN_ENDED]

    def is_done(self) -> bool:
        return not self.unfinished()

    def end(self) -> list[int]:
        """In order, when the dead are buried. Their exit codes."""
        pids = {worker.pid for worker in self.workers}
        wait_until(lambda: set(self.known().values()) <= pids, "the dead are not buried")
        for worker in self.workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "serving\n"
            worker.send_signal(signal.SIGTERM)
        for worker in self.workers:
            worker.communicate()
        return [worker.returncode for worker in self.workers]


TROUBLES = (
    *(Fleet.kill, Fleet.kill, Fleet.kill, Fleet.stop_shortly, Fleet.stop_shortly),
    *(Fleet.kill_with_supervisor, Fleet.kill_with_supervisor, Fleet.stop_until_buried, Fleet.stop_with_supervisor),
    *(Fleet.lose_connections, Fleet.lose_connections, Fleet.cancel_a_run, Fleet.cancel_a_run),
)


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """Others may end a supervisor that does not: what it ran is theirs to run."""
    now = snapshot()
    processes = [now[pid] for pid in pids if pid in now]
    send_signal(processes, signal.SIGSTOP)
    yield
    send_signal(processes, signal.SIGCONT)


def children_of(pid: int) -> list[int]:
    """A worker's only child is its supervisor."""
    return [process.pid for process in snapshot().values() if process.parent == pid]


# -- what must hold --------------------------------------------------------------------------------------------------


def ending(log: list[e.Entry]) -> e.Fact:
    """The one fact with which the run ended. What came too late may have been refused after it."""
    (fact,) = [entry.fact for entry in log if isinstance(entry.fact, ENDINGS)]
    return fact


ENDINGS = (e.RunCompleted, e.RunFailed, e.RunCancelled)


def expect_success_unless_lost_too_often(service: Service, run_id: int, log: list[e.Entry]) -> None:
    """No run fails, but for one in which, or in whose child, a task lost its worker again and again."""
    losses = Counter(entry.fact.place for entry in log if isinstance(entry.fact, e.AttemptLost))
    if isinstance(ending(log), e.RunFailed):
        has_failed_child = any(child.status == "failed" for child in service.reader.store.children(run_id))
        assert has_failed_child or max(losses.values(), default=0) > RERUNS_AFTER_LOSS_MAX


def root_of(service: Service, run_id: int) -> int:
    return service.runs.record(run_id).root_run_id


def expect_results_of_what_was_done(stage: Stage, run_id: int, log: list[e.Entry]) -> None:
    """Every result in the log was printed under a lease whose work is in the journal, from its beginning to its end."""
    done = {str(line.fence) for line in stage.lines() if line.verb == "end" and line.run_id == run_id}
    facts = [entry.fact for entry in log if isinstance(entry.fact, e.AttemptSucceeded)]
    results = {(fact.place, fact.attempt): fact.output for fact in facts if fact.place.endswith(PRINTS_ITS_LEASE)}

    assert {place: lease for place, lease in results.items() if lease not in done} == {}
    assert len(set(results.values())) == len(results)


def expect_nothing_kept(url: str) -> None:
    """No task, lease, message, timer or worker outlives the runs."""
    with psycopg.connect(url) as connection:
        for table in ("tasks", "messages", "timers", "workers", "answers"):
            assert connection.execute(f"SELECT * FROM {table}").fetchall() == [], table
        assert connection.execute("SELECT count(*) FROM runs WHERE holder <> ''").fetchall() == [(0,)]


# Every trouble comes once; `make chaos` has many orders of them.
@pytest.mark.nightly
@pytest.mark.parametrize("seed", [1])
def test_no_death_of_a_worker_loses_or_doubles_anything(
    server_stage: Stage, tmp_path: Path, named_url: str, seed: int
) -> None:
    chance = random.Random(seed)
    troubles = chance.sample(TROUBLES, len(TROUBLES))
    with server_stage.service() as service:
        server_stage.workflow(CHILD, "child.yaml")
        mixed = load(tmp_path / server_stage.workflow(MIXED))
        service.changes.create(prepare(mixed, {}, tmp_path), times=RUNS)
        fleet = Fleet(Stage(tmp_path, named_url), service)
        fleet.fill()

        for number, trouble in enumerate(troubles):
            share = RUNS * ENTRIES_PER_RUN * (number + 1) // (len(troubles) + 1)
            wait_until(lambda share=share: fleet.written() > share or fleet.is_done(), "nobody goes on")
            trouble(fleet, chance.choice(fleet.workers))
        wait_until(fleet.is_done, lambda: f"not done: {fleet.unfinished()}")

        assert fleet.end() == [0] * WORKERS
        run_ids = [run.run_id for run in service.reader.runs(limit=RUNS_MAX)]
        logs = {run_id: list(service.reader.events(run_id)) for run_id in run_ids}
        assert any(isinstance(entry.fact, e.AttemptLost) for log in logs.values() for entry in log)
        for run_id, log in logs.items():
            server_stage.expect_promises(service, run_id)
            expect_success_unless_lost_too_often(service, run_id, log)
            assert not isinstance(ending(log), e.RunCancelled) or root_of(service, run_id) in fleet.cancelled
            expect_results_of_what_was_done(server_stage, run_id, log)
    expect_nothing_kept(server_stage.home.store_url)
    server_stage.expect_no_overlap()
    server_stage.expect_nothing_left()
