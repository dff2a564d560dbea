"""Which pilots are submitted: a pure function of the demand of the queue and of the pilots that there are."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.core.effects.run_lists import QueuedShape
from mulligan.core.model.clusters.slurm_profile import SlurmProfile
from mulligan.service.host.slurm.pilots import PilotSize
from mulligan.service.host.slurm.planning import (
    Plan,
    Submission,
    Supply,
    can_take,
    choose,
    is_meant_for,
    plan,
    size_for,
    suits,
    unmet,
    usable_seconds,
)

GIB = 2**30
DEFAULT = {"default": SlurmProfile(cpus=4, memory=8 * GIB)}
FOUR = PilotSize(4, 8192)


def tasks(count: int, **asked: object) -> QueuedShape:
    return QueuedShape(count=count, **asked)  # type: ignore[arg-type]


def counts(found: Plan) -> list[tuple[str, int]]:
    return [(one.profile, one.count) for one in found.submissions]


@pytest.mark.parametrize(
    ("shape", "pilots"),
    [
        (tasks(0), 0),
        (tasks(1), 1),
        (tasks(4), 1),
        (tasks(5), 2),
        (tasks(9, cpus=0.5), 2),
        (tasks(3, cpus=3.0), 3),
        (tasks(4, memory=5 * GIB), 4),
        (tasks(4, memory=4 * GIB), 2),
        (tasks(100), 10),
    ],
)
def test_as_many_pilots_as_the_tasks_need_at_once_within_the_maximum(shape: QueuedShape, pilots: int) -> None:
    found = plan(DEFAULT, [shape], [], pilots_max=10)

    assert sum(one.count for one in found.submissions) == pilots


def test_pilots_that_have_not_joined_yet_will_take_tasks() -> None:
    supply = [Supply("default", FOUR, is_open=True), Supply("default", FOUR, is_open=False)]

    assert counts(plan(DEFAULT, [tasks(4)], supply, pilots_max=10)) == []
    assert counts(plan(DEFAULT, [tasks(5)], supply, pilots_max=10)) == [("default", 1)]
    assert counts(plan(DEFAULT, [tasks(50)], supply, pilots_max=3)) == [("default", 1)]


def test_different_tasks_share_a_pilot() -> None:
    shapes = [tasks(2), tasks(1, memory=GIB), tasks(2, cpus=0.5)]

    assert counts(plan(DEFAULT, shapes, [], pilots_max=10)) == [("default", 1)]


def test_one_task_pilots_are_as_many_as_tasks() -> None:
    profiles = {"default": SlurmProfile(cpus=4, tasks=1)}

    assert counts(plan(profiles, [tasks(7)], [], pilots_max=100)) == [("default", 7)]


def test_what_the_profile_leaves_open_is_what_a_task_asks_for() -> None:
    profiles = {"default": SlurmProfile(partition="main")}

    found = plan(profiles, [tasks(2, cpus=2.5, memory=GIB, gpus=1), tasks(1, nodes=4)], [], pilots_max=9)

    assert [(one.size, one.count) for one in found.submissions] == [
        (PilotSize(3, 1024 + 64, 1), 2),
        (PilotSize(1, None, 0, 4), 1),
    ]


def test_the_profile_with_the_least_beside_what_is_needed_is_chosen() -> None:
    profiles = {
        "gpu": SlurmProfile(cpus=8, gpus=1, labels=("gpu",)),
        "wide": SlurmProfile(cpus=8, nodes=4),
        "default": SlurmProfile(cpus=8),
    }

    def chosen(shape: QueuedShape) -> str:
        found = choose(profiles, shape)
        return found[0] if found else ""

    assert chosen(tasks(1)) == "default"
    assert chosen(tasks(1, gpus=1)) == "default"
    assert chosen(tasks(1, gpus=1, labels=("gpu",))) == "gpu"
    assert chosen(tasks(1, nodes=4)) == "wide"
    assert chosen(tasks(1, nodes=5)) == "default"
    assert chosen(tasks(1, cpus=9.0)) == ""
    assert choose({"gpu": profiles["gpu"]}, tasks(1)) is None


def test_a_task_that_no_walltime_is_long_enough_for_is_unmet() -> None:
    profiles = {"default": SlurmProfile(cpus=1, walltime=3600.0)}

    found = plan(profiles, [tasks(1, timeout=3600.0), tasks(1, timeout=3500.0), tasks(1)], [], pilots_max=9)

    assert counts(found) == [("default", 2)]
    assert [one.reason for one in found.unmet] == [
        "their timeout is 1h00m, and the longest pilot has 58m30s for tasks: "
        "write a longer walltime, or a shorter timeout"
    ]


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (tasks(1, labels=("gpu",)), "no profile has label 'gpu'"),
        (tasks(1, cpus=64.0), "they ask for more than the pilots of any profile have"),
        (tasks(1, memory=9 * GIB), "they ask for more than the pilots of any profile have"),
    ],
)
def test_it_is_said_why_no_profile_has_pilots_for_a_task(shape: QueuedShape, reason: str) -> None:
    found = plan(DEFAULT, [shape], [], pilots_max=9)

    assert (found.submissions, [one.reason for one in found.unmet]) == ((), [reason])


LABELLED = {
    "gpu": SlurmProfile(cpus=4, labels=("gpu", "fast")),
    "big": SlurmProfile(cpus=4, labels=("big",), walltime=600.0),
}


@pytest.mark.parametrize(
    ("profiles", "shape", "reason"),
    [
        (
            LABELLED,
            tasks(1, labels=("tape", "big", "disk", "ssd", "film", "card", "reel")),
            "no profile has labels 'card', 'disk', 'film', 'reel', 'ssd', 'tape'",
        ),
        (LABELLED, tasks(1, labels=("gpu", "big")), "no profile has all of their labels"),
        (LABELLED, tasks(1), "every profile has labels, and they ask for none"),
        ({"wide": SlurmProfile(nodes=2)}, tasks(1), "no profile has such a number of nodes"),
        ({"wide": SlurmProfile(nodes=2)}, tasks(1, nodes=3), "no profile has such a number of nodes"),
        (
            {"wide": SlurmProfile(nodes=2, walltime=600.0)},
            tasks(1, timeout=540.0),
            "no profile has such a number of nodes",
        ),
        (
            {"a": SlurmProfile(walltime=600.0), "b": SlurmProfile(walltime=1200.0), "c": SlurmProfile(nodes=2)},
            tasks(1, timeout=1500.0),
            "their timeout is 25m00s, and the longest pilot has 18m30s for tasks: "
            "write a longer walltime, or a shorter timeout",
        ),
        (
            {"a": SlurmProfile(walltime=600.0), "b": SlurmProfile(walltime=1200.0)},
            tasks(1, timeout=1200.0),
            "their timeout is 20m00s, and the longest pilot has 18m30s for tasks: "
            "write a longer walltime, or a shorter timeout",
        ),
        (
            {"a": SlurmProfile(cpus=4), "b": SlurmProfile(cpus=4, walltime=600.0)},
            tasks(1, cpus=64.0, timeout=1200.0),
            "they ask for more than the pilots of any profile have",
        ),
        (
            {"a": SlurmProfile(cpus=1, gpus=1)},
            tasks(1, gpus=2),
            "they ask for more than the pilots of any profile have",
        ),
    ],
)
def test_it_is_said_what_is_missing_in_the_profiles(
    profiles: dict[str, SlurmProfile], shape: QueuedShape, reason: str
) -> None:
    assert [(one.shape, one.reason) for one in unmet(profiles, [shape])] == [(shape, reason)]
    assert [one.reason for one in plan(profiles, [shape], [], pilots_max=9).unmet] == [reason]


def test_what_a_profile_has_pilots_for_is_not_unmet() -> None:
    assert unmet(LABELLED, [tasks(1, labels=("fast",)), tasks(1, labels=("big",), timeout=540.0)]) == []


@pytest.mark.parametrize(
    ("walltime", "usable"), [(100.0, 85.0), (150.0, 135.0), (600.0, 540.0), (900.0, 810.0), (7200.0, 7110.0)]
)
def test_a_worker_ends_before_its_job_by_a_tenth_of_the_time_within_bounds(walltime: float, usable: float) -> None:
    assert usable_seconds(walltime) == usable
    assert suits(SlurmProfile(walltime=walltime), tasks(1, timeout=usable))
    assert not suits(SlurmProfile(walltime=walltime), tasks(1, timeout=usable + 1))


@pytest.mark.parametrize(
    ("profile", "shape", "size"),
    [
        (SlurmProfile(), tasks(1, cpus=0.0), PilotSize(1)),
        (SlurmProfile(), tasks(1, cpus=2.0), PilotSize(2)),
        (SlurmProfile(), tasks(1, cpus=2.1), PilotSize(3)),
        # The worker has its share beside that of the task, in whole MiB.
        (SlurmProfile(), tasks(1, memory=1), PilotSize(1, 65)),
        (SlurmProfile(), tasks(1, memory=GIB), PilotSize(1, 1088)),
        (SlurmProfile(cpus=4, memory=GIB, gpus=2, nodes=3), tasks(1, nodes=2), PilotSize(4, 1024, 2, 3)),
        (SlurmProfile(), tasks(1, gpus=2, nodes=3), PilotSize(1, None, 2, 3)),
        (SlurmProfile(nodes=2), tasks(1), PilotSize(1, None, 0, 2)),
    ],
)
def test_a_pilot_is_as_large_as_its_profile_says_or_as_a_task_needs(
    profile: SlurmProfile, shape: QueuedShape, size: PilotSize
) -> None:
    assert size_for(profile, shape) == size


@pytest.mark.parametrize(
    ("asked", "is_taken"),
    [
        ({"cpus": 4.0, "memory": GIB, "gpus": 2, "nodes": 3, "labels": ("a", "b")}, True),
        ({"cpus": 4.1}, False),
        ({"memory": GIB + 1}, False),
        ({"gpus": 3}, False),
        ({"nodes": 4}, False),
        ({"labels": ("a", "c")}, False),
    ],
)
def test_a_worker_takes_what_it_has_all_of(asked: dict[str, object], is_taken: bool) -> None:
    found = can_take(tasks(1, **asked), cpus=4.0, memory=GIB, gpus=2, nodes=3, labels=("a", "b"))

    assert found == is_taken


@pytest.mark.parametrize(
    ("profiles", "shape", "chosen"),
    [
        # The first of equals; then the fewest labels, GPUs and nodes that are not needed, in this order.
        ({"a": SlurmProfile(), "b": SlurmProfile()}, tasks(1), "a"),
        ({"a": SlurmProfile(gpus=2), "b": SlurmProfile(gpus=1)}, tasks(1), "b"),
        ({"a": SlurmProfile(gpus=3), "b": SlurmProfile(gpus=2)}, tasks(1, gpus=2), "b"),
        # One that leaves the GPUs open gets as many as are needed: the two are equal.
        ({"a": SlurmProfile(gpus=2), "b": SlurmProfile()}, tasks(1, gpus=2), "a"),
        ({"a": SlurmProfile(nodes=3), "b": SlurmProfile(nodes=2)}, tasks(1, nodes=2), "b"),
        ({"a": SlurmProfile(nodes=4), "b": SlurmProfile(nodes=3)}, tasks(1, nodes=2), "b"),
        ({"a": SlurmProfile(nodes=2, gpus=1), "b": SlurmProfile(nodes=4)}, tasks(1, nodes=2), "b"),
        (
            {"a": SlurmProfile(labels=("x", "y")), "b": SlurmProfile(labels=("x",), gpus=1)},
            tasks(1, labels=("x",)),
            "b",
        ),
    ],
)
def test_little_is_left_unused(profiles: dict[str, SlurmProfile], shape: QueuedShape, chosen: str) -> None:
    found = choose(profiles, shape)

    assert found is not None and found[0] == chosen


def test_a_pilot_of_several_nodes_runs_one_such_task_at_a_time_and_nothing_beside_it() -> None:
    profiles = {"wide": SlurmProfile(cpus=4, nodes=2)}
    supply = [Supply("wide", PilotSize(4, None, 0, 2), is_open=True)]

    assert counts(plan(profiles, [tasks(3, nodes=2)], supply, pilots_max=9)) == [("wide", 2)]
    assert counts(plan(profiles, [tasks(1, nodes=2), tasks(1, nodes=2, cpus=2.0)], supply, pilots_max=9)) == [
        ("wide", 1)
    ]


def test_tasks_of_several_nodes_leave_the_pilots_that_they_do_not_need_to_others() -> None:
    profiles = {"wide": SlurmProfile(cpus=4, nodes=2)}
    supply = [Supply("wide", PilotSize(4, None, 0, 2), is_open=True)] * 2

    assert counts(plan(profiles, [tasks(1, nodes=2), tasks(1, nodes=2, cpus=2.0)], supply, pilots_max=9)) == []


def test_a_pilot_for_one_task_takes_one_of_several_nodes() -> None:
    profiles = {"wide": SlurmProfile(cpus=4, nodes=2, tasks=1)}

    assert counts(plan(profiles, [tasks(2, nodes=2)], [], pilots_max=9)) == [("wide", 2)]


def test_gpus_and_tasks_of_a_pilot_are_used_up() -> None:
    profiles = {"gpu": SlurmProfile(cpus=8, gpus=2)}
    few = {"few": SlurmProfile(cpus=8, tasks=3)}

    assert counts(plan(profiles, [tasks(3, gpus=1)], [], pilots_max=9)) == [("gpu", 2)]
    assert counts(plan(profiles, [tasks(2, gpus=1), tasks(1, gpus=1, cpus=2.0)], [], pilots_max=9)) == [("gpu", 2)]
    assert counts(plan(few, [tasks(2), tasks(2, cpus=2.0)], [], pilots_max=9)) == [("few", 2)]


def test_memory_and_processors_that_one_kind_of_task_takes_are_not_there_for_another() -> None:
    by_memory = [tasks(1, memory=6 * GIB), tasks(1, memory=3 * GIB, cpus=0.5)]
    by_cpus = [tasks(1, cpus=3.0), tasks(1, cpus=2.0)]

    for shapes in (by_memory, by_cpus):
        assert counts(plan(DEFAULT, shapes, [], pilots_max=9)) == [("default", 2)]


def test_memory_is_counted_to_the_byte_however_much_there_is() -> None:
    profiles = {"vast": SlurmProfile(cpus=8, memory=2**60)}

    assert counts(plan(profiles, [tasks(2, memory=2**59)], [], pilots_max=9)) == [("vast", 1)]
    assert counts(plan(profiles, [tasks(2, memory=2**59 + 1)], [], pilots_max=9)) == [("vast", 2)]


def test_a_submission_names_each_kind_of_task_once_and_pilots_of_a_profile_that_is_gone_only_count() -> None:
    one, other = tasks(9), tasks(3, cpus=2.0)

    found = plan(DEFAULT, [one, other], [Supply("gone", FOUR, is_open=True)], pilots_max=9)

    assert [(each.count, each.shapes) for each in found.submissions] == [(4, (one, other))]
    assert counts(plan(DEFAULT, [one], [Supply("gone", FOUR, is_open=True)], pilots_max=1)) == []


def test_while_a_profile_may_have_no_pilot_another_one_gets_its_tasks() -> None:
    profiles = {"first": SlurmProfile(cpus=4), "second": SlurmProfile(cpus=4)}

    assert counts(plan(profiles, [tasks(1)], [], pilots_max=9, limits={"first": 0})) == [("second", 1)]


def test_a_limit_of_a_profile_counts_the_pilots_that_it_has() -> None:
    supply = [Supply("default", FOUR, is_open=False)]

    assert counts(plan(DEFAULT, [tasks(50)], supply, pilots_max=9, limits={"default": 3})) == [("default", 2)]
    # What waits for a breaker to close is not unmet.
    assert plan(DEFAULT, [tasks(50)], [], pilots_max=9, limits={"default": 0}).unmet == ()


def test_pilots_that_are_submitted_for_one_kind_of_task_count_for_the_next() -> None:
    open_ = {"default": SlurmProfile()}
    two = {"plain": SlurmProfile(cpus=1), "gpu": SlurmProfile(cpus=1, labels=("gpu",))}
    shapes = [tasks(2), tasks(9, cpus=2.0)]

    assert [one.count for one in plan(open_, shapes, [], pilots_max=9, limits={"default": 5}).submissions] == [2, 3]
    assert counts(plan(two, [tasks(2), tasks(9, labels=("gpu",))], [], pilots_max=5)) == [("plain", 2), ("gpu", 3)]


def test_it_is_said_that_slurm_does_not_take_them_if_another_profile_is_too_small_anyway() -> None:
    profiles = {"small": SlurmProfile(cpus=1), "big": SlurmProfile(cpus=8)}

    found = plan(profiles, [tasks(1, cpus=4.0)], [], pilots_max=9, refused={("big", PilotSize(8))})

    assert [one.reason for one in found.unmet] == ["Slurm does not take pilots of this size"]


def test_what_slurm_does_not_take_goes_to_another_profile() -> None:
    profiles = {"small": SlurmProfile(cpus=8), "big": SlurmProfile(cpus=16)}

    assert counts(plan(profiles, [tasks(1)], [], pilots_max=9)) == [("small", 1)]
    refused = {("small", PilotSize(8))}
    assert counts(plan(profiles, [tasks(1)], [], pilots_max=9, refused=refused)) == [("big", 1)]
    refused.add(("big", PilotSize(16)))
    found = plan(profiles, [tasks(1)], [], pilots_max=9, refused=refused)
    assert [one.reason for one in found.unmet] == ["Slurm does not take pilots of this size"]


def test_a_profile_whose_breaker_is_open_gets_no_pilot_and_a_probe_is_one() -> None:
    assert counts(plan(DEFAULT, [tasks(50)], [], pilots_max=9, limits={"default": 0})) == []
    assert counts(plan(DEFAULT, [tasks(50)], [], pilots_max=9, limits={"default": 1})) == [("default", 1)]


# -- properties -------------------------------------------------------------------------------------------------------

_labels = st.sets(st.sampled_from(["a", "b"]), max_size=2).map(lambda found: tuple(sorted(found)))
_shapes = st.builds(
    QueuedShape,
    cpus=st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0, 3.7, 64.0]),
    memory=st.sampled_from([0, 1, GIB, 6 * GIB]),
    gpus=st.integers(0, 2),
    nodes=st.sampled_from([1, 1, 1, 2, 5]),
    labels=_labels,
    timeout=st.sampled_from([None, 30.0, 4000.0]),
    count=st.integers(1, 300),
)
_profiles = st.dictionaries(
    st.sampled_from(["default", "p", "q"]),
    st.builds(
        SlurmProfile,
        cpus=st.sampled_from([None, 1, 4, 64]),
        memory=st.sampled_from([None, GIB, 8 * GIB]),
        gpus=st.integers(0, 2),
        nodes=st.sampled_from([1, 1, 3]),
        labels=_labels,
        walltime=st.sampled_from([None, 600.0, 7200.0]),
        tasks=st.sampled_from([None, 1, 3]),
    ),
    min_size=1,
)
_sizes = st.builds(PilotSize, st.sampled_from([None, 1, 4]), st.sampled_from([None, 1024]), st.integers(0, 1))
_supply = st.lists(st.builds(Supply, st.sampled_from(["default", "p", "old"]), _sizes, st.booleans()), max_size=8)


@given(_profiles, st.lists(_shapes, max_size=5), _supply, st.integers(0, 20), st.sampled_from([{}, {"p": 0}, {"p": 1}]))
def test_a_plan_is_bounded_useful_and_complete(
    profiles: dict[str, SlurmProfile],
    demand: list[QueuedShape],
    supply: list[Supply],
    most: int,
    limits: dict[str, int],
) -> None:
    found = plan(profiles, demand, supply, pilots_max=most, limits=limits)

    new = sum(one.count for one in found.submissions)
    assert new == 0 or len(supply) + new <= most
    for name, limit in limits.items():
        mine = sum(one.count for one in found.submissions if one.profile == name)
        assert mine == 0 or mine + sum(one.profile == name for one in supply) <= limit
    for one in found.submissions:
        # A pilot is submitted only for tasks that its worker can take.
        assert one.shapes
        for shape in one.shapes:
            profile = profiles[one.profile]
            assert suits(profile, shape)
            assert is_meant_for(profile, shape)
            assert one.size == size_for(profile, shape)
            memory = math.inf if one.size.memory is None and not shape.memory else (one.size.memory or 0) << 20
            assert can_take(
                shape,
                cpus=one.size.cpus or 1,
                memory=int(min(memory, 2**60)),
                gpus=one.size.gpus,
                nodes=one.size.nodes,
                labels=profile.labels,
            )
    # Whoever looks again before they have joined submits nothing more.
    after = [*supply, *(Supply(one.profile, one.size, is_open=True) for one in _each(found.submissions))]
    assert plan(profiles, demand, after, pilots_max=most, limits=limits).submissions == ()


def _each(submissions: tuple[Submission, ...]) -> list[Submission]:
    return [one for one in submissions for _ in range(one.count)]
