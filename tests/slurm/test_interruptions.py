"""A job that Slurm ends interrupts its tasks: they run again in another job, and no retry is spent."""

from __future__ import annotations

import pytest

from mulligan.core.model import events as e

from .site import LABEL, Site, ended

TASKS = 8
# Each task waits for somebody to say "go".
FLOW = f"""
name: wide
steps:
  - step: work
    map: {{over: '${{{list(range(TASKS))}}}', as: n}}
    do: [{{shell: 'sh $ACT work; until test -e go; do sleep 0.05; done'}}]
    resources: {{cpus: 0.1, labels: [{LABEL}]}}
    retry: {{max_retries: 2}}
"""


def test_a_job_that_slurm_ends_interrupts_its_tasks(site: Site, how: str) -> None:
    options = {"walltime": ["--time=1"], "preempt": ["--partition=low"]}.get(how, [])
    job = site.worker_job(*options)
    run = site.start("run", site.stage.workflow(FLOW), "--json")
    site.wait_for_lines("start", TASKS)
    node = site.slurm.job(job).fields["NodeList"]

    if how == "scancel":
        site.slurm.run("scancel", job)
    elif how == "preempt":
        urgent = ("--partition=urgent", f"--nodelist={node}", "--exclusive")
        site.slurm.submit("true", *urgent, cwd=site.folder)

    expected = {"scancel": "CANCELLED", "preempt": "PREEMPTED", "walltime": "TIMEOUT"}[how]
    site.wait_for_state(job, expected, seconds=130)
    (site.folder / "go").touch()
    site.worker_job()
    shown = ended(run)
    assert len(site.facts(shown["run_id"], e.AttemptInterrupted)) == TASKS
    assert site.facts(shown["run_id"], e.AttemptFailed) == []
    assert site.facts(shown["run_id"], e.AttemptLost) == []
    assert site.count("start") == 2 * TASKS


@pytest.fixture(params=["scancel", "preempt", "walltime"])
def how(request: pytest.FixtureRequest) -> str:
    return request.param
