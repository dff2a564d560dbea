"""What the end of a job means for its tasks, and what is said about it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.private_slurm import wait_until

from mulligan.core.model import events as e
from mulligan.core.model.clusters.worker_time import RERUNS_AFTER_TIME_MAX

from .site import LABEL, Site, ended

# A worker stops its tasks ten seconds before its end.
UNTIL = "--until 18s"
# Fills more memory than a job with 400 MiB has.
EATS = "kept = []\nfor _ in range(600):\n    kept.append(b'x' * 2**20)\n"


def flow(shell: str, retry: str = "0") -> str:
    return f"""
name: one
steps:
  - step: work
    shell: |
      sh $ACT work
      {shell}
    resources: {{labels: [{LABEL}]}}
    retry: {retry}
"""


def story(site: Site) -> list[str]:
    return [line["text"] for line in site.mulligan("explain", "1")]


def details(site: Site) -> dict[str, Any]:
    """What the first failure of the run says about its job."""
    found: dict[str, Any] = site.facts(1, e.AttemptFailed)[0].failure.details["slurm"]
    return found


def test_a_task_longer_than_all_its_jobs_fails_with_a_timeout(site: Site) -> None:
    site.worker_job(worker=UNTIL)
    driver = site.start("run", site.stage.workflow(flow("sleep 600")), "--json")
    site.wait_for_lines("start", 1)

    for number in range(RERUNS_AFTER_TIME_MAX):
        wait_until(lambda n=number: len(site.facts(1, e.AttemptInterrupted)) > n, "its worker does not end", 60)
        if site.facts(1, e.AttemptFailed):
            break
        site.worker_job(worker=UNTIL)
    driver.communicate(timeout=60)

    interrupted = site.facts(1, e.AttemptInterrupted)
    (failed,) = site.facts(1, e.AttemptFailed)
    # One more if the second came late to its worker.
    assert len(interrupted) in (2, 3)
    assert interrupted[-1].ran_seconds >= 0.85 * interrupted[-1].life_seconds
    assert failed.failure.code == "TIMEOUT"
    assert details(site)["node"] in site.slurm.nodes


def test_what_is_lost_with_a_node_names_it_and_says_what_slurm_says(site: Site) -> None:
    job = site.worker_job("--no-requeue")
    driver = site.start("run", site.stage.workflow(flow("until test -e go; do sleep 0.05; done")), "--json")
    site.wait_for_lines("start", 1)
    node = site.slurm.job(job).fields["NodeList"]

    site.slurm.kill_node(node)
    wait_until(lambda: bool(site.facts(1, e.AttemptLost)), "the loss was not noticed")
    (site.folder / "go").touch()
    site.worker_job()

    ended(driver)
    (lost,) = site.facts(1, e.AttemptLost)
    assert (lost.job.job.id, lost.job.job.node) == (job, node)
    # Slurm notices it a moment sooner or later than we do.
    assert lost.job.state in ("NODE_FAIL", "RUNNING")
    assert f"attempt 1 lost: its worker on node {node} (Slurm job {job}) is gone: Slurm says {lost.job.state}" in story(
        site
    )


@pytest.mark.parametrize("slurm", ["cgroup"], indirect=True)
def test_a_task_that_the_kernel_kills_in_its_job_is_out_of_memory_and_gets_more(site: Site) -> None:
    (site.folder / "eat.py").write_text(EATS)
    retry = "{rules: [{codes: [OUT_OF_MEMORY], adjust: {memory: x1.5}, max_retries: 3}]}"
    site.worker_job("--mem=400")
    driver = site.start("run", site.stage.workflow(flow("python3 eat.py", retry)), "--json")
    site.wait_for_lines("start", 1)
    wait_until(lambda: bool(site.facts(1, e.AttemptFailed)), "it does not fail")
    site.worker_job("--mem=2000")

    ended(driver)
    codes = [fact.failure.code for fact in site.facts(1, e.AttemptFailed)]
    assert set(codes) == {"OUT_OF_MEMORY"}
    assert site.facts(1, e.AttemptLost) == []


@pytest.mark.parametrize("slurm", ["cgroup"], indirect=True)
@pytest.mark.parametrize("worker", ["--tasks 1", ""], ids=["one task", "many tasks"])
def test_a_worker_that_the_kernel_kills_has_lost_its_tasks_unless_it_had_only_one(site: Site, worker: str) -> None:
    (site.folder / "eat.py").write_text(EATS)
    # The kernel is to choose the worker.
    offer = "w=${MULLIGAN_WORKER%.*}; echo 1000 > /proc/${w##*.}/oom_score_adj"
    shell = f"test -e go || {{ {offer}; python3 eat.py; }}"
    retry = "{rules: [{codes: [OUT_OF_MEMORY], max_retries: 1}]}"
    job = site.worker_job("--mem=400", worker=worker)
    driver = site.start("run", site.stage.workflow(flow(shell, retry)), "--json")
    site.wait_for_lines("start", 1)
    wait_until(lambda: bool(site.facts(1, e.AttemptLost)), "the loss was not noticed")
    (site.folder / "go").touch()
    site.worker_job()

    ended(driver)
    (lost,) = site.facts(1, e.AttemptLost)
    failed = [fact.failure.code for fact in site.facts(1, e.AttemptFailed)]
    assert (lost.job.job.id, lost.job.state, lost.job.ending) == (job, "OUT_OF_MEMORY", "memory")
    assert failed == (["OUT_OF_MEMORY"] if worker else [])


def test_a_worker_without_an_end_of_its_own_knows_the_end_of_its_job(site: Site) -> None:
    job = site.worker_job("--time=2")
    driver = site.start("run", site.stage.workflow(flow("sleep 600")), "--json")
    site.wait_for_lines("start", 1)

    (worker,) = [one for one in site.mulligan("workers") if one["job"]]
    assert 60 < worker["job"]["life_seconds"] <= 120
    driver.kill()
    driver.communicate()
    site.slurm.run("scancel", job)
