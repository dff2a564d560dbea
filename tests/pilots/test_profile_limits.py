"""What a profile may say: its bounds, and the profile that there is if nobody wrote one."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.core.model.clusters.slurm_profile import DEFAULT_PROFILE, TASKS_MAX, WALLTIME_SECONDS_MIN, SlurmProfile
from mulligan.errors import LanguageError
from mulligan.service.host.slurm.profiles import find_profiles, parse_profiles


def read(line: str) -> SlurmProfile:
    return parse_profiles(f"[slurm.night]\n{line}\n", "mulligan.toml")["night"]


def test_a_pilot_runs_for_a_minute_or_longer_and_for_up_to_a_million_tasks() -> None:
    assert read('walltime = "60s"').walltime == WALLTIME_SECONDS_MIN
    assert read("tasks = 1_000_000").tasks == TASKS_MAX


@pytest.mark.parametrize("line", ['walltime = "59s"', 'walltime = "00:00:59"', "tasks = 0", "tasks = 1_000_001"])
def test_less_time_and_more_tasks_are_refused(line: str) -> None:
    with pytest.raises(LanguageError):
        read(line)


def test_if_nobody_wrote_a_profile_there_is_one_for_which_the_cluster_decides_everything(tmp_path: Path) -> None:
    found = find_profiles(tmp_path, {}, environ={"XDG_CONFIG_HOME": str(tmp_path)})

    assert found.by_name == {"default": SlurmProfile()}
    assert found.get(DEFAULT_PROFILE) == SlurmProfile()
