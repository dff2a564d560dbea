"""The kernel's kills for want of memory, as both versions of control groups tell them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.worker.supervisor.own_cgroup import OomKills, cpu_limit, kills_file, memory_limit


@pytest.mark.parametrize("lines", ["low 0\noom 9\noom_kill {}\n", "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"])
def test_each_kill_is_taken_once(tmp_path: Path, lines: str) -> None:
    file = tmp_path / "events"
    file.write_text(lines.format(3))
    kills = OomKills(file)

    before = kills.take_new()
    file.write_text(lines.format(5))

    assert [before, *(kills.take_new() for _ in range(3))] == [False, True, True, False]


def test_kills_that_are_accounted_for_are_not_new(tmp_path: Path) -> None:
    file = tmp_path / "events"
    file.write_text("oom_kill 1\n")
    kills = OomKills(file)
    file.write_text("oom_kill 4\n")

    kills.settle()

    assert not kills.take_new()


@pytest.mark.parametrize("content", [None, "", "oom 1\n"])
def test_where_nothing_is_told_there_never_was_one(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "events").write_text(content)

    assert not OomKills(tmp_path / "events").take_new()


def test_the_group_of_this_process_can_be_asked() -> None:
    assert not OomKills().take_new()


def test_what_the_group_of_this_process_may_have_is_a_size_or_nothing() -> None:
    found = memory_limit()

    assert found is None or found > 0


def groups(root: Path, own: str, files: dict[str, str]) -> tuple[Path, Path]:
    """A tree of control groups with these files, and the group of a process in it."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content + "\n")
    (root / "own").write_text(own)
    return root, root / "own"


def test_the_lowest_limit_of_all_groups_above_counts(tmp_path: Path) -> None:
    tree = groups(
        tmp_path,
        "0::/slurm/job_7/step_0/task_0\n",
        {
            "slurm/memory.max": "max",
            "slurm/job_7/memory.max": str(500 << 20),
            "slurm/job_7/step_0/memory.max": str(600 << 20),
            "slurm/job_7/step_0/task_0/memory.max": "max",
            "slurm/job_7/cpu.max": "150000 100000",
            "slurm/job_7/step_0/task_0/cpu.max": "max 100000",
            "other/memory.max": "1",
        },
    )

    assert memory_limit(*tree) == 500 << 20
    assert cpu_limit(*tree) == 2


def test_the_same_in_version_1(tmp_path: Path) -> None:
    tree = groups(
        tmp_path,
        "5:cpu,cpuacct:/job/task\n3:memory:/job/task\n0::/\n",
        {
            "memory/job/task/memory.limit_in_bytes": "9223372036854771712",
            "memory/job/memory.limit_in_bytes": str(500 << 20),
            "cpu/job/cpu.cfs_quota_us": "-1",
            "cpu/job/task/cpu.cfs_quota_us": "300000",
        },
    )

    assert memory_limit(*tree) == 500 << 20
    assert cpu_limit(*tree) == 3


def test_without_a_limit_there_is_none(tmp_path: Path) -> None:
    tree = groups(tmp_path, "0::/a/b\n", {"a/memory.max": "max"})

    assert memory_limit(*tree) is None and cpu_limit(*tree) is None
    assert memory_limit(tmp_path, tmp_path / "none") is None


@pytest.mark.parametrize(
    ("own", "files", "found"),
    [
        # Version 2: a job of Slurm as a whole.
        (
            "0::/slurmstepd.scope/job_17/step_batch/user/task_0\n",
            ("slurmstepd.scope/job_17/memory.events", "slurmstepd.scope/job_17/step_batch/user/task_0/memory.events"),
            "slurmstepd.scope/job_17/memory.events",
        ),
        # Where that cannot be read, its own group.
        ("0::/job_17/step_0\n", ("job_17/step_0/memory.events",), "job_17/step_0/memory.events"),
        ("0::/user.slice/job_x\n", ("user.slice/job_x/memory.events",), "user.slice/job_x/memory.events"),
        # Version 1 counts each group alone.
        (
            "4:memory:/slurm_n1/uid_0/job_17/step_batch\n0::/\n",
            (
                "memory/slurm_n1/uid_0/job_17/memory.oom_control",
                "memory/slurm_n1/uid_0/job_17/step_batch/memory.oom_control",
            ),
            "memory/slurm_n1/uid_0/job_17/step_batch/memory.oom_control",
        ),
        ("4:cpu:/a\n0::/\n", (), None),
    ],
)
def test_the_kills_are_counted_where_those_of_tasks_are(
    tmp_path: Path, own: str, files: tuple[str, ...], found: str | None
) -> None:
    root, own_file = groups(tmp_path, own, dict.fromkeys(files, "oom_kill 0"))

    assert kills_file(root, own_file) == (None if found is None else root / found)
