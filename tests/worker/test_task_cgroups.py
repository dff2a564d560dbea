"""Control groups of tasks: whose may be divided, what is written into them, and that none is left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.work import Work

from mulligan.worker.supervisor import processes
from mulligan.worker.supervisor.task_cgroups import (
    DELEGATION_MARKS,
    VARIABLE,
    CgroupParent,
    TaskCgroup,
    TaskCgroups,
    find_parent,
)

MIB = 1 << 20
V1, V2 = "9:cpu:/\n4:memory:{}\n0::/\n", "0::{}\n"


def tree(root: Path, path: str, *, is_unified: bool, controllers: str = "cpu memory") -> Path:
    """A folder as the kernel shows a group of this version, below a root of our own."""
    folder = root / ("" if is_unified else "memory") / path.lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    if is_unified:
        (folder / "cgroup.controllers").write_text(f"{controllers}\n")
    else:
        (folder / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    return folder


def mark(folder: Path, value: bytes) -> None:
    try:
        os.setxattr(folder, DELEGATION_MARKS[0], value)
    except OSError:
        pytest.skip("this file system keeps no extended attributes")


# -- whose is what ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lines", "is_unified"), [(V1, False), (V2, True)])
def test_a_group_that_is_only_writable_is_not_divided(tmp_path: Path, lines: str, is_unified: bool) -> None:
    tree(tmp_path, "/batch/step_1", is_unified=is_unified)

    assert find_parent("", str(tmp_path), lines.format("/batch/step_1")) is None


@pytest.mark.parametrize(("lines", "is_unified"), [(V1, False), (V2, True)])
def test_a_group_that_was_marked_as_delegated_is_divided(tmp_path: Path, lines: str, is_unified: bool) -> None:
    folder = tree(tmp_path, "/system/mulligan", is_unified=is_unified)
    mark(folder, b"1")

    found = find_parent("", str(tmp_path), lines.format("/system/mulligan"))

    assert found is not None
    assert (found.folder, found.own, found.is_unified) == (str(folder), str(folder), is_unified)


def test_a_mark_that_says_no_is_none(tmp_path: Path) -> None:
    mark(tree(tmp_path, "/system/mulligan", is_unified=True), b"0")

    assert find_parent("", str(tmp_path), V2.format("/system/mulligan")) is None


@pytest.mark.parametrize(("lines", "is_unified"), [(V1, False), (V2, True)])
def test_the_root_of_what_is_seen_is_divided(tmp_path: Path, lines: str, is_unified: bool) -> None:
    folder = tree(tmp_path, "/", is_unified=is_unified)

    found = find_parent("", str(tmp_path), lines.format("/"))

    assert found is not None
    assert found.folder == str(folder)


@pytest.mark.parametrize(("lines", "is_unified"), [(V1, False), (V2, True)])
def test_a_group_that_is_named_is_divided_whoever_runs_ours(tmp_path: Path, lines: str, is_unified: bool) -> None:
    own = tree(tmp_path, "/batch/step_1", is_unified=is_unified)
    named = tree(tmp_path, "/tasks", is_unified=is_unified)

    found = find_parent(f"{named}/", str(tmp_path), lines.format("/batch/step_1"))

    assert found is not None
    assert (found.folder, found.own) == (str(named), str(own))


@pytest.mark.parametrize(
    ("named", "lines"),
    [
        ("", ""),  # no control groups at all
        ("", "0::/\n"),  # version 2 without a folder for it
        ("/nowhere", V1.format("/")),  # a name that means nothing
        ("", "7:freezer:/\n"),  # version 1 without memory
    ],
)
def test_where_there_is_nothing_to_divide_none_is_found(tmp_path: Path, named: str, lines: str) -> None:
    assert find_parent(named, str(tmp_path), lines) is None


def test_version_2_without_memory_is_nothing_to_divide(tmp_path: Path) -> None:
    tree(tmp_path, "/", is_unified=True, controllers="cpu pids")

    assert find_parent("", str(tmp_path), V2.format("/")) is None


# -- one group -------------------------------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir()}


def test_a_limit_of_version_1_is_for_memory_and_swap_together(tmp_path: Path) -> None:
    TaskCgroup(str(tmp_path), False).limit(512 * MIB)

    assert contents(tmp_path) == {"memory.limit_in_bytes": "536870912", "memory.memsw.limit_in_bytes": "536870912"}


def test_a_limit_of_version_2_lets_nothing_go_to_swap_and_kills_all_or_none(tmp_path: Path) -> None:
    TaskCgroup(str(tmp_path), True).limit(512 * MIB)

    assert contents(tmp_path) == {"memory.max": "536870912", "memory.swap.max": "0", "memory.oom.group": "1"}


@pytest.mark.parametrize(
    ("name", "content", "is_out_of_memory"),
    [
        ("memory.events", "max 7\noom 1\noom_kill 2\noom_group_kill 1\n", True),
        ("memory.events", "max 7\noom 0\noom_kill 0\noom_group_kill 0\n", False),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", True),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", False),
        ("somewhere.else", "oom_kill 1\n", False),
    ],
)
def test_a_group_has_run_out_if_the_kernel_has_killed_in_it(
    tmp_path: Path, name: str, content: str, is_out_of_memory: bool
) -> None:
    (tmp_path / name).write_text(content)

    assert TaskCgroup(str(tmp_path), name == "memory.events").is_out_of_memory() is is_out_of_memory


@pytest.mark.parametrize(("name", "is_unified"), [("memory.peak", True), ("memory.max_usage_in_bytes", False)])
def test_the_peak_is_what_the_kernel_tells_and_nothing_where_it_does_not(
    tmp_path: Path, name: str, is_unified: bool
) -> None:
    before = TaskCgroup(str(tmp_path), is_unified).peak_bytes()
    (tmp_path / name).write_text("4096\n")

    assert (before, TaskCgroup(str(tmp_path), is_unified).peak_bytes()) == (0, 4096)


# -- the groups of a supervisor --------------------------------------------------------------------------------------


@pytest.fixture
def parent(tmp_path: Path) -> CgroupParent:
    folder, own = tmp_path / "ours", tmp_path / "own"
    folder.mkdir()
    own.mkdir()
    return CgroupParent(str(folder), str(own), False)


def test_who_makes_a_group_goes_in_and_out_again_and_the_limit_is_set_then(parent: CgroupParent) -> None:
    groups = TaskCgroups(parent)
    group = groups.enter(5)

    assert group is not None
    assert contents(Path(group.folder)) == {"cgroup.procs": "0"}
    assert groups.leave(group, 64 * MIB, is_running=True)
    assert contents(Path(parent.own)) == {"cgroup.procs": "0"}
    assert contents(Path(group.folder))["memory.limit_in_bytes"] == str(64 * MIB)


def test_a_group_is_not_kept_for_what_could_not_be_started(parent: CgroupParent) -> None:
    groups = TaskCgroups(parent)
    group = groups.enter(5)
    assert group is not None
    # The files of a real group go with it.
    (Path(group.folder) / "cgroup.procs").unlink()

    assert not groups.leave(group, 64 * MIB, is_running=False)
    assert os.listdir(parent.folder) == []


def test_where_a_group_cannot_be_made_there_is_none(parent: CgroupParent) -> None:
    os.rmdir(parent.folder)

    assert TaskCgroups(parent).enter(5) is None


def test_a_group_that_would_not_go_is_removed_with_the_next_one(parent: CgroupParent) -> None:
    groups = TaskCgroups(parent)
    first, second = groups.enter(1), groups.enter(2)
    assert first is not None and second is not None
    groups.close(first)
    for group in (first, second):
        (Path(group.folder) / "cgroup.procs").unlink()

    groups.close(second)

    assert os.listdir(parent.folder) == []


def test_all_groups_are_removed_when_their_supervisor_ends(parent: CgroupParent) -> None:
    groups = TaskCgroups(parent)
    made = [groups.enter(key) for key in (1, 2)]
    for group in made:
        assert group is not None
        (Path(group.folder) / "cgroup.procs").unlink()

    groups.close_all()

    assert os.listdir(parent.folder) == []


def test_groups_of_dead_supervisors_are_removed_and_no_others(parent: CgroupParent) -> None:
    # A number that no process can have.
    gone = f"mulligan-{(1 << 22) + 1}-7"
    kept = [f"mulligan-{os.getpid()}-7", "mulligan-worker", "mulliganish-1-1", "others"]
    for name in (gone, *kept):
        os.mkdir(f"{parent.folder}/{name}")

    group = TaskCgroups(parent).enter(8)

    assert group is not None
    assert sorted(os.listdir(parent.folder)) == sorted([*kept, os.path.basename(group.folder)])


def test_in_version_2_memory_is_handed_out_once(tmp_path: Path) -> None:
    folder, own = tree(tmp_path, "/tasks", is_unified=True), tree(tmp_path, "/own", is_unified=True)
    (folder / "cgroup.subtree_control").write_text("cpu\n")

    group = TaskCgroups(CgroupParent(str(folder), str(own), True)).enter(1)

    assert group is not None
    assert (folder / "cgroup.subtree_control").read_text() == "+memory"


def test_in_version_2_a_group_in_which_others_are_is_not_divided(tmp_path: Path) -> None:
    folder = tree(tmp_path, "/", is_unified=True)
    (folder / "cgroup.procs").write_text("1\n")
    # As the kernel refuses it while somebody is there.
    (folder / "cgroup.subtree_control").mkdir()

    assert TaskCgroups(CgroupParent(str(folder), str(folder), True)).enter(1) is None
    assert not (folder / "mulligan-worker").exists()


def test_in_version_2_a_worker_that_is_alone_steps_aside_since_no_group_both_holds_and_divides(tmp_path: Path) -> None:
    folder = tree(tmp_path, "/", is_unified=True)
    (folder / "cgroup.procs").write_text(f"{os.getpid()}\n")
    parent = CgroupParent(str(folder), str(folder), True)

    group = TaskCgroups(parent).enter(1)

    assert group is not None
    assert (folder / "mulligan-worker" / "cgroup.procs").read_text() == str(os.getpid())
    assert (folder / "cgroup.subtree_control").read_text() == "+memory"
    assert parent.own == str(folder / "mulligan-worker")


# -- the real thing --------------------------------------------------------------------------------------------------


@pytest.mark.skipif(find_parent(os.environ.get(VARIABLE, "")) is None, reason="no control group here is ours to divide")
def test_the_kernel_keeps_a_task_to_its_memory_and_nothing_of_its_group_is_left(work: Work) -> None:
    parent = find_parent(os.environ.get(VARIABLE, ""))
    assert parent is not None
    hungry = "x = bytearray(300_000_000)"

    # Its shell lives on, and would say that all is well.
    killed = work.run_shell(f"python3 -c '{hungry}'; exit 0", memory=100 * MIB)
    spared = work.run_shell(f"python3 -c '{hungry}'", memory=600 * MIB)

    assert killed.outcome.is_out_of_memory
    assert killed.usage["peak_memory"] <= 100 * MIB
    assert not spared.outcome.is_out_of_memory
    supervisor = work.executor._supervisor.pid
    assert [name for name in os.listdir(parent.folder) if name.startswith(f"mulligan-{supervisor}-")] == []
    assert processes.is_running(supervisor)
