"""What Slurm says about a job, as its variables have it."""

from __future__ import annotations

import pytest

from mulligan.worker.allocation import Allocation, slurm_allocation

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
        ({"SLURM_GPUS_ON_NODE": "2", "SLURM_GPUS": "4"}, Allocation(gpus=2)),
        ({"SLURM_GPUS": "a100:4", "SLURM_MEM_PER_GPU": "10"}, Allocation(memory=40 * MIB, gpus=4)),
        ({"SLURM_CPUS_ON_NODE": "many", "SLURM_MEM_PER_NODE": ""}, Allocation()),
    ],
)
def test_a_job_has_what_slurm_says(variables: dict[str, str], found: Allocation):
    assert slurm_allocation(JOB | variables) == found


def test_outside_of_a_job_the_variables_mean_nothing():
    assert slurm_allocation({"SLURM_CPUS_ON_NODE": "4"}) == Allocation()
