"""`mulligan slurm auto`: it submits what the queue asks for, once, whatever happens to it."""

from __future__ import annotations

import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.private_slurm import wait_until

from mulligan.core.model import events as e

from .site import Site, ended

PILOTS_MAX = 3
KILLING_PROGRAM = Path(__file__).with_name("killing_program.sh")
TASKS = 6
WIDE = f"""
name: wide
steps:
  - step: work
    map: {{over: '${{{list(range(TASKS))}}}', as: n}}
    do: [{{shell: 'sh $ACT work 0.2'}}]
"""


@pytest.mark.parametrize("slurm", ["linuxproc"], indirect=True)
@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_an_allocator_that_is_killed_at_any_call_submits_nothing_twice(site: Site, when: str) -> None:
    # Jobs of this partition wait for ever, so that no pilot takes a task away.
    site.profile('cpus = 1\npartition = "closed"')
    site.start("run", site.stage.workflow(WIDE), "--parallel", 0, "--json")
    wait_until(lambda: site.queued_tasks() == TASKS, "the tasks are not queued")
    killed = calls = 0

    while killed == calls:
        calls += 1
        killed += allocate(site, calls, when) == -9
        # Another one at once.
        assert allocate(site) == 0
        numbers = Counter(site.slurm.run("squeue", "--array", "--noheader", "--format=%j %K").splitlines())
        assert sum(numbers.values()) == PILOTS_MAX
        assert set(numbers.values()) == {1}
        site.slurm.cancel_all()

    print(f"killed at {killed} calls ({when})")
    assert killed >= 2


def allocate(site: Site, kill_at: int = 0, when: str = "") -> int:
    """The exit code of one look, with programs of Slurm that kill it at the given call."""
    programs = site.folder / "programs"
    programs.mkdir(exist_ok=True)
    for name in ("sbatch", "squeue", "scancel"):
        if not (programs / name).exists():
            (programs / name).symlink_to(KILLING_PROGRAM)
    calls = site.folder / "calls"
    calls.write_text("")
    environ = {
        **site.stage.environment,
        "PATH": f"{programs}:{site.stage.environment['PATH']}",
        **{"CALLS": str(calls), "KILL_AT": str(kill_at), "KILL_WHEN": when},
    }
    command = [*site.program, "slurm", "auto", "--max", str(PILOTS_MAX), "--once"]
    return subprocess.run(
        command, cwd=site.folder, env=environ, capture_output=True, timeout=60, check=False
    ).returncode


def test_auto_submits_what_the_queue_asks_for_until_it_is_drained(site: Site) -> None:
    site.profile('cpus = 1\nwalltime = "10m"')
    auto = site.start("slurm", "auto", "--max", 2, "--every", "1s")
    run = site.start("run", site.stage.workflow(WIDE), "--parallel", 0, "--json")
    ended(run)
    running = {one["job_id"] for one in site.pilots()}

    drained = site.mulligan("slurm", "drain")

    assert set(drained["asked"]) == running
    assert len(running) == 2
    said = auto.communicate(timeout=60)[1]
    assert "slurm auto has ended: it was drained" in said
    wait_until(lambda: [job.state for job in site.jobs()] == ["COMPLETED"] * 2, "the pilots do not end")


def test_a_step_with_two_nodes_gets_both(site: Site) -> None:
    site.profile('cpus = 1\nwalltime = "10m"')
    flow = """
name: two
steps:
  - {step: work, shell: 'srun hostname | sort > nodes', resources: {nodes: 2}}
  - {step: after, needs: [work], shell: 'hostname > node'}
"""
    auto = site.start("slurm", "auto", "--max", 2, "--every", "1s")
    ended(site.start("run", site.stage.workflow(flow), "--parallel", 0, "--json"))

    auto.terminate()
    auto.communicate(timeout=60)
    nodes = (site.folder / "nodes").read_text().split()
    assert len(set(nodes)) == 2
    assert set(nodes) < set(site.slurm.nodes)


@pytest.mark.parametrize("slurm", ["linuxproc"], indirect=True)
def test_a_size_that_slurm_refuses_is_a_failure_with_its_sentence(site: Site) -> None:
    site.profile('walltime = "10m"')
    flow = "name: big\nsteps:\n  - {step: work, shell: 'true', resources: {cpus: 500}}\n"
    auto = site.start("slurm", "auto", "--max", 2, "--every", "1s")

    code, shown, _ = site.answer(site.start("run", site.stage.workflow(flow), "--parallel", 0, "--json"))

    auto.terminate()
    auto.communicate(timeout=60)
    assert (code, shown["failures"][0]["code"]) == (1, "NO_CAPACITY")
    assert "More processors requested than permitted" in shown["failures"][0]["message"]


@pytest.mark.parametrize("slurm", ["linuxproc"], indirect=True)
def test_pilots_that_fail_before_they_join_are_not_submitted_for_ever(site: Site) -> None:
    site.profile('cpus = 1\nwalltime = "10m"\nsetup = "module-that-is-not-there"')
    auto = site.start("slurm", "auto", "--max", 1, "--every", "1s")
    site.start("run", site.stage.workflow(WIDE), "--parallel", 0, "--json")

    wait_until(lambda: bool(site.mulligan("slurm", "status")["breakers"]), "the breaker does not open", seconds=60)

    status = site.mulligan("slurm", "status")
    assert (status["breakers"][0]["name"], status["breakers"][0]["failures"]) == ("slurm:default", 3)
    assert len(site.jobs()) == 3
    assert "the setup of the profile failed" in status["failed"][0]["said"]
    # No task was harmed.
    assert site.facts(1, e.AttemptFailed) == []
    assert site.queued_tasks() == TASKS
    auto.terminate()
    auto.communicate(timeout=60)


@pytest.mark.parametrize("slurm", ["cgroup"], indirect=True)
def test_a_task_that_runs_out_of_memory_gets_a_larger_pilot(site: Site) -> None:
    site.profile('cpus = 1\nwalltime = "10m"')
    flow = """
name: hungry
steps:
  - step: work
    shell: python3 eat.py
    resources: {memory: 100MiB}
    retry: {rules: [{codes: [OUT_OF_MEMORY], max_retries: 4, adjust: {memory: x1.5}}]}
"""
    (site.folder / "eat.py").write_text("eaten = b'x' * (230 << 20)")
    auto = site.start("slurm", "auto", "--max", 4, "--every", "1s")

    shown = ended(site.start("run", site.stage.workflow(flow), "--parallel", 0, "--json"))

    auto.terminate()
    auto.communicate(timeout=60)
    failures = [fact.failure for fact in site.facts(shown["run_id"], e.AttemptFailed)]
    assert {failure.code for failure in failures} == {"OUT_OF_MEMORY"}
    # Half as much again as it was given or has used, whatever is more, and a pilot of its own for each size.
    asked = [failure.details["memory"] >> 20 for failure in failures]
    sizes = [int(job.fields["JobName"].rpartition("m")[2]) for job in site.jobs()]
    print(f"asked for {asked} MiB in vain, pilots of {sizes} MiB")
    assert asked[0] == 100
    assert all(larger >= 1.5 * smaller for smaller, larger in pairwise(asked))
    assert all(0 <= size - 64 - memory <= 1 for size, memory in zip(sizes, asked, strict=False))
    assert sizes[-1] >= 1.5 * asked[-1] + 64
