"""Pilots that `mulligan slurm` submits: what they run, how they are seen, how they end."""

from __future__ import annotations

import subprocess
from datetime import datetime

import pytest
from tests.support.private_slurm import wait_until

from mulligan.core.model import events as e

from .site import Site, ended

FOUR = """
name: four
steps:
  - step: work
    map: {over: '${[1, 2, 3, 4]}', as: n}
    do: [{shell: 'sh $ACT work; echo "$SLURMD_NODENAME says ${n}"'}]
"""
WAITING = """
name: waiting
steps:
  - {step: work, shell: 'sh $ACT work; until test -e go; do sleep 0.05; done'}
"""


def test_submitted_pilots_run_all_steps_of_a_run_that_is_driven_here(site: Site) -> None:
    site.profile('cpus = 2\nmemory = "400MiB"\nwalltime = "10m"\npartition = "main"')

    site.mulligan("slurm", "submit", 2)
    shown = ended(site.start("run", site.stage.workflow(FOUR), "--parallel", 0, "--json"))

    assert site.count("end") == 4
    workers = {fact.worker for fact in site.facts(shown["run_id"], e.AttemptStarted) if fact.worker}
    nodes = {pilot["node"] for pilot in site.pilots()}
    assert {worker.partition(".")[0] for worker in workers} <= nodes <= set(site.slurm.nodes)
    # From another home: what the store has of the logs.
    elsewhere = {**site.stage.environment, "MULLIGAN_HOME": f"{site.folder}/other"}
    command = [*site.program, "logs", "1", "work"]
    logs = subprocess.run(command, cwd=site.folder, env=elsewhere, capture_output=True, text=True, check=True).stdout
    assert all(f"says {number}" in logs for number in range(1, 5))


def test_the_status_shows_where_a_task_runs(site: Site) -> None:
    site.profile('cpus = 1\nwalltime = "10m"')
    site.mulligan("slurm", "submit", 1)
    run = site.start("run", site.stage.workflow(WAITING), "--parallel", 0, "--json")
    site.wait_for_lines("start", 1)
    wait_until(lambda: site.pilots()[0]["tasks"] == 1, "no task is shown")

    (pilot,) = site.pilots()

    job = site.jobs()[0]
    assert (pilot["state"], pilot["node"], pilot["cpus"]) == ("RUNNING", job.fields["NodeList"], 1)
    assert 400 < pilot["seconds_left"] <= 600
    (site.folder / "go").touch()
    ended(run)


def test_runs_go_on_while_the_controller_is_down(site: Site) -> None:
    site.profile('cpus = 2\nwalltime = "10m"')
    site.mulligan("slurm", "submit", 1)
    run = site.start("run", site.stage.workflow(WAITING), "--parallel", 0, "--json")
    site.wait_for_lines("start", 1)

    site.slurm.kill_controller()
    status = site.start("slurm", "status")
    said = status.communicate(timeout=60)[1]
    (site.folder / "go").touch()

    assert "error[slurm.unreachable]" in said
    assert status.returncode == 1
    ended(run)
    ended(site.start("run", site.stage.workflow(FOUR), "--parallel", 0, "--json"))


@pytest.mark.parametrize("slurm", ["linuxproc"], indirect=True)
def test_every_pilot_of_an_array_knows_when_its_job_ends(site: Site) -> None:
    site.profile('cpus = 1\nwalltime = "10m"')
    site.mulligan("slurm", "submit", 3)
    wait_until(lambda: len(site.mulligan("workers")) == 3, "the workers are not up")

    ends = [datetime.fromisoformat(worker["ends_at"]) for worker in site.mulligan("workers")]

    job_ends = [datetime.fromisoformat(pilot["ends_at"]) for pilot in site.pilots()]
    assert all(0 < (min(job_ends) - one).total_seconds() < 120 for one in ends)


@pytest.mark.parametrize("slurm", ["linuxproc"], indirect=True)
def test_a_step_longer_than_its_pilots_fails_with_a_timeout(site: Site) -> None:
    site.profile('cpus = 1\nwalltime = "1m"')
    flow = "name: long\nsteps:\n  - {step: work, shell: 'sh $ACT work 600'}\n"
    site.start("slurm", "auto", "--max", 1, "--every", "1s")
    run = site.start("run", site.stage.workflow(flow), "--parallel", 0, "--json")
    wait_until(lambda: run.poll() is not None, "the run does not end", seconds=280)

    code, shown, said = site.answer(run)

    assert (code, shown["failures"][0]["code"]) == (1, "TIMEOUT"), said
    interrupted = site.facts(1, e.AttemptInterrupted)
    assert site.count("start") == len(interrupted) <= 3
    assert site.facts(1, e.AttemptLost) == []
    print(f"{site.count('start')} attempts, then TIMEOUT")
