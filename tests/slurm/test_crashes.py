"""Processes and nodes that are killed: what was done is not done again, and what was lost runs elsewhere."""

from __future__ import annotations

import time

from tests.support.private_slurm import wait_until

from mulligan.core.model import events as e

from .site import LABEL, Site, ended

STEPS = 6
# The third waits for somebody to say "go".
CHAIN = "name: chain\nsteps:\n" + "\n".join(
    f"  - {{step: s{number}, {f'needs: [s{number - 1}], ' if number else ''}resources: {{labels: [{LABEL}]}}, "
    f"shell: 'sh $ACT s{number}; until test {number} != 2 || test -e go; do sleep 0.05; done'}}"
    for number in range(STEPS)
)
ONE = f"""
name: one
steps:
  - {{step: work, shell: 'sh $ACT work; until test -e go; do sleep 0.05; done', resources: {{labels: [{LABEL}]}}}}
"""


def test_nothing_is_repeated_when_the_driver_and_the_controller_are_killed(site: Site) -> None:
    site.worker_job(cpus=2)
    site.worker_job(cpus=2)
    driver = site.start("run", site.stage.workflow(CHAIN), "--json")
    site.wait_for_lines("start", 3)

    driver.kill()
    site.slurm.kill_controller()
    driver.communicate()
    (site.folder / "go").touch()

    assert site.mulligan("wait", "1")[0]["status"] == "completed"
    assert [line.name for line in site.stage.lines() if line.verb == "start"] == [f"s{n}" for n in range(STEPS)]
    assert site.facts(1, e.AttemptLost) == []


def test_the_tasks_of_a_killed_node_run_on_another_one(site: Site) -> None:
    del site.stage.environment["MULLIGAN_LEASE"]
    jobs = [site.worker_job("--exclusive", "--no-requeue", cpus=1) for _ in range(2)]
    for job in jobs:
        site.wait_until_up(job)
    driver = site.start("run", site.stage.workflow(ONE), "--json")
    site.wait_for_lines("start", 1)
    wait_until(lambda: bool(site.facts(1, e.AttemptStarted)), "the start was not recorded")
    (started,) = site.facts(1, e.AttemptStarted)
    job = next(one for one in jobs if started.worker in site.said_by(one))
    node = site.slurm.job(job).fields["NodeList"]

    site.slurm.kill_node(node)
    killed_at = time.monotonic()
    # Slurm finds that out itself in about half a minute, at the same time as we do.
    site.slurm.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=killed")
    site.wait_for_lines("start", 2)
    seconds = time.monotonic() - killed_at

    print(f"attempt 2 started {seconds:.1f} s after the node was killed")
    assert seconds < 40
    (site.folder / "go").touch()
    assert ended(driver)["run_id"] == 1
    explained = site.start("explain", "1").communicate(timeout=60)[0]
    assert f"attempt 1 lost: its worker on node {node} (Slurm job {job}) is gone: Slurm says NODE_FAIL" in explained
