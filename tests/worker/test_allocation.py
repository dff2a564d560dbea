"""What Slurm says about a job, as its variables have it."""

from __future__ import annotations

import pytest

from mulligan.core.model.clusters.scheduler_job import WorkerJob
from mulligan.worker.slots.allocation import Allocation, slurm_allocation, slurm_job

MIB = 1 << 20
JOB = {"SLURM_JOB_ID": "7"}


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, Allocation()),
        ({"SLURM_CPUS_ON_NODE": "4", "SLURM_MEM_PER_NODE": "500"}, Allocation(4, 500 * MIB)),
        ({"SLURM_CPUS_ON_NODE": "4", "SLURM_MEM_PER_CPU": "100"}, Allocation(4, 400 * MIB)),
        # All memory of the node.
        ({"SLURM_CPUS_ON_NODE": "4", "SLURM_MEM_PER_NODE": "0"}, Allocation(4)),
        # The script of a job has all tasks of the node; what srun starts is one of them.
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_CPUS_PER_TASK": "2"}, Allocation(8)),
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_CPUS_PER_TASK": "2", "SLURM_STEP_ID": "0"}, Allocation(2)),
        ({"SLURM_CPUS_PER_TASK": "2"}, Allocation(2)),
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_STEP_ID": "0"}, Allocation(8)),
        ({"SLURM_GPUS_ON_NODE": "2", "SLURM_GPUS": "4"}, Allocation(gpus=2)),
        ({"SLURM_GPUS_PER_NODE": "a100:2", "SLURM_GPUS": "4"}, Allocation(gpus=2)),
        ({"SLURM_GPUS": "a100:4", "SLURM_MEM_PER_GPU": "10"}, Allocation(memory=40 * MIB, gpus=4)),
        ({"SLURM_CPUS_ON_NODE": "many", "SLURM_MEM_PER_NODE": ""}, Allocation()),
        ({"SLURM_MEM_PER_CPU": "100"}, Allocation()),
        ({"SLURM_MEM_PER_GPU": "100"}, Allocation()),
        ({"SLURM_NNODES": "3"}, Allocation(nodes=3)),
    ],
)
def test_a_job_has_what_slurm_says(variables: dict[str, str], found: Allocation):
    assert slurm_allocation(JOB | variables) == found


def test_outside_of_a_job_the_variables_mean_nothing():
    assert slurm_allocation({"SLURM_CPUS_ON_NODE": "4"}) == Allocation()


@pytest.mark.parametrize(
    ("variables", "job"),
    [
        ({}, WorkerJob("7")),
        ({"SLURMD_NODENAME": "n3", "SLURM_NODELIST": "n[3-4]"}, WorkerJob("7", "n3")),
        ({"SLURM_NODELIST": "n3"}, WorkerJob("7", "n3")),
        ({"SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_JOB_ID": "5"}, WorkerJob("7", array_id="5", array_task=0)),
        ({"MULLIGAN_SLURM_PROFILE": "long", "SLURM_RESTART_COUNT": "2"}, WorkerJob("7", profile="long", restarts=2)),
        ({"SLURM_RESTART_COUNT": "many"}, WorkerJob("7")),
    ],
)
def test_a_worker_knows_its_job(variables: dict[str, str], job: WorkerJob):
    assert slurm_job(JOB | variables) == job


def test_a_worker_knows_the_limits_of_its_job():
    found = slurm_job(JOB, tasks_max=1, life_seconds=600.0)

    assert found == WorkerJob("7", is_one_task=True, life_seconds=600.0)
    assert slurm_job(JOB, tasks_max=2) == WorkerJob("7")


def test_outside_of_a_job_there_is_none():
    assert slurm_job({"SLURMD_NODENAME": "n3"}, tasks_max=1) is None


def test_what_a_job_is_called_is_bounded():
    names = ("SLURM_JOB_ID", "SLURMD_NODENAME", "SLURM_ARRAY_JOB_ID", "MULLIGAN_SLURM_PROFILE")

    found = slurm_job(dict.fromkeys(names, "9" * 5000))

    assert found is not None
    assert [len(text) for text in (found.id, found.node, found.array_id, found.profile)] == [256] * 4


def test_the_script_of_a_job_has_all_of_its_nodes_and_a_task_of_srun_has_one():
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "4"}

    assert slurm_allocation(job).nodes == 4
    assert slurm_allocation({**job, "SLURM_STEP_ID": "0"}).nodes is None
    assert slurm_allocation({}).nodes is None
