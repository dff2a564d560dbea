"""`mulligan slurm submit` for a Torc file: its schedulers are profiles, and it says how many pilots there are."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import mulligan

from .fake_slurm import FakeSlurm

FILE = """\
name: w
slurm_schedulers:
  - {name: short, account: team, partition: debug, mem: 2g, walltime: '00:30:00', extra: --exclusive}
jobs: [{name: a, command: 'true', scheduler: short}]
actions:
  - trigger_type: on_workflow_start
    action_type: schedule_nodes
    scheduler: short
    scheduler_type: slurm
    num_allocations: 3
"""


def test_as_many_pilots_are_submitted_as_the_file_schedules(
    slurm: FakeSlurm, folder: Path, store_schema_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MULLIGAN_STORE", store_schema_url)
    Path("w.yaml").write_text(FILE, encoding="utf-8")

    said = mulligan("slurm", "submit", "--file", "w.yaml", "--profile", "short")

    assert said.code == 0, said.err
    (words,) = slurm.calls("sbatch")
    wanted = {"--array=1-3", "--account=team", "--partition=debug", "--mem=2048M", "--time=30", "--exclusive"}
    assert wanted <= set(words)


def test_without_a_number_anywhere_it_is_asked_for(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULLIGAN_STORE", "postgresql://user:hidden@db.example/runs")
    Path("w.yaml").write_text(FILE, encoding="utf-8")

    said = mulligan("slurm", "submit", "--file", "w.yaml")

    assert (said.code, slurm.calls("sbatch")) == (2, [])
    assert "'slurm submit' needs the number of pilots" in said.err
