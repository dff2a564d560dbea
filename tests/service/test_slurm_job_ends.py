"""What Slurm says about the jobs of workers that are gone, and what it means for their tasks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mulligan.core.model.clusters.scheduler_job import JobEnd, JobEnding, WorkerJob
from mulligan.service.host.slurm.job_ends import JobEnds, has_node, job_seconds_left, run_command
from mulligan.service.host.slurm.states import is_open, job_end

JOB = WorkerJob("17", "n3")
# The states in the manuals of squeue and sacct, and those that scontrol may print.
DOCUMENTED = (
    "BOOT_FAIL CANCELLED COMPLETED CONFIGURING COMPLETING DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PENDING PREEMPTED "
    "RUNNING RESV_DEL_HOLD REQUEUE_FED REQUEUE_HOLD REQUEUED RESIZING REVOKED SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED "
    "SUSPENDED TIMEOUT EXPEDITING LAUNCH_FAILED POWER_UP_NODE RECONFIG_FAIL UPDATE_DB"
).split()
MEANINGS: dict[str, JobEnding] = {"TIMEOUT": "time", "DEADLINE": "time", "OUT_OF_MEMORY": "memory"}
LOST = (
    "BOOT_FAIL COMPLETING FAILED LAUNCH_FAILED NODE_FAIL RECONFIG_FAIL RESIZING RUNNING SIGNALING STAGE_OUT UPDATE_DB"
).split()


class Slurm:
    """The commands of Slurm: what each prints, and how long it takes."""

    def __init__(self, queue: Sequence[str | None] = ("",), accounts: str | None = "", seconds: float = 0.0) -> None:
        self.queue = [*queue]
        self.accounts = accounts
        self.seconds = seconds
        self.now = 100.0
        self.asked: list[tuple[str, ...]] = []

    def run(self, command: Sequence[str], seconds: float) -> str | None:
        self.asked.append(tuple(command))
        self.now += min(self.seconds, seconds)
        if self.seconds > seconds:
            return None
        if command[0] == "sacct":
            return self.accounts
        return self.queue.pop(0) if len(self.queue) > 1 else self.queue[0]

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def ends(self) -> JobEnds:
        return JobEnds(self.run, lambda: self.now, self.sleep)


def row(job_id: str, state: str, restarts: int = 0, nodes: str = "n3") -> str:
    return f"{job_id:<20}{state:<30}{restarts:<12}{nodes:<1000}\n"


@pytest.mark.parametrize("state", DOCUMENTED)
def test_every_state_has_a_meaning(state: str) -> None:
    expected = MEANINGS.get(state, "" if state in LOST else "free")

    assert job_end(JOB, state) == JobEnd(JOB, state, expected)


def test_a_state_that_nobody_knows_is_a_loss() -> None:
    assert job_end(JOB, "HAUNTED") == JobEnd(JOB, "HAUNTED")


def test_a_job_that_was_started_again_was_put_back_whatever_it_does_now() -> None:
    again = WorkerJob("17", "n3", restarts=1)

    assert job_end(JOB, "OUT_OF_MEMORY", 1) == JobEnd(JOB, "REQUEUED", "free")
    assert job_end(again, "OUT_OF_MEMORY", 1) == JobEnd(again, "OUT_OF_MEMORY", "memory")


def test_only_what_is_about_to_change_is_open() -> None:
    assert {state for state in DOCUMENTED if is_open(state, is_dead=False)} == {"COMPLETING", "SIGNALING"}
    assert {state for state in DOCUMENTED if is_open(state, is_dead=True)} == {"COMPLETING", "SIGNALING", "RUNNING"}


def test_all_jobs_are_asked_about_at_once_and_never_for_a_reason() -> None:
    slurm = Slurm([row("17", "NODE_FAIL") + row("18", "TIMEOUT", nodes="n[3-4]")])
    other = WorkerJob("18", "n4")

    found = slurm.ends().ask({JOB: False, other: True})

    assert found == {JOB: JobEnd(JOB, "NODE_FAIL"), other: JobEnd(other, "TIMEOUT", "time")}
    (asked,) = slurm.asked
    assert asked[-1] == "--jobs=17,18"
    assert "reason" not in " ".join(asked).lower()


def test_without_slurm_only_the_job_is_known() -> None:
    assert Slurm().ends().ask({JOB: True}) == {JOB: JobEnd(JOB)}


def test_the_accounts_know_what_the_queue_has_forgotten() -> None:
    slurm = Slurm([row("18", "FAILED")], "17|CANCELLED by 1000|n3\n17.batch|CANCELLED|n3\nnonsense\n")
    other = WorkerJob("18", "n3")

    found = slurm.ends().ask({JOB: False, other: False})

    assert found == {JOB: JobEnd(JOB, "CANCELLED", "free"), other: JobEnd(other, "FAILED")}
    assert [command[0] for command in slurm.asked] == ["squeue", "sacct"]
    assert slurm.asked[1][-1] == "--jobs=17"


def test_a_job_that_is_ending_is_asked_about_until_it_has_ended() -> None:
    slurm = Slurm([row("17", "RUNNING"), row("17", "COMPLETING"), row("17", "OUT_OF_MEMORY")])

    assert slurm.ends().ask({JOB: True}) == {JOB: JobEnd(JOB, "OUT_OF_MEMORY", "memory")}


def test_a_job_that_does_not_end_is_given_up_soon() -> None:
    slurm = Slurm([row("17", "COMPLETING")])

    assert slurm.ends().ask({JOB: True}) == {JOB: JobEnd(JOB, "COMPLETING")}
    assert slurm.now <= 102


def test_a_silent_worker_whose_job_runs_is_not_waited_for() -> None:
    slurm = Slurm([row("17", "RUNNING")])

    assert slurm.ends().ask({JOB: False}) == {JOB: JobEnd(JOB, "RUNNING")}
    assert slurm.now == 100


def test_a_controller_that_does_not_answer_is_left_alone_for_a_while() -> None:
    slurm = Slurm([row("17", "FAILED")], seconds=60)
    ends = slurm.ends()

    assert ends.ask({JOB: True}) == {JOB: JobEnd(JOB)}
    assert slurm.now == 102
    assert ends.ask({JOB: True}) == {JOB: JobEnd(JOB)}
    assert slurm.now == 102

    slurm.now, slurm.seconds = 200, 0
    assert ends.ask({JOB: True}) == {JOB: JobEnd(JOB, "FAILED")}


def test_a_job_of_the_same_number_on_other_nodes_is_one_of_another_cluster() -> None:
    assert Slurm([row("17", "COMPLETED", nodes="x[1-9]")]).ends().ask({JOB: False}) == {JOB: JobEnd(JOB)}


@pytest.mark.parametrize("nodes", ["", "(null)", "n/a"])
def test_a_job_that_waits_has_no_nodes(nodes: str) -> None:
    slurm = Slurm([row("17", "PENDING", 1, nodes)])

    assert slurm.ends().ask({JOB: False}) == {JOB: JobEnd(JOB, "REQUEUED", "free")}


@pytest.mark.parametrize("job_id", ["", "17;ls", "--help", "1" * 30])
def test_what_is_no_number_of_a_job_is_not_asked(job_id: str) -> None:
    slurm, job = Slurm(), WorkerJob(job_id)

    assert slurm.ends().ask({job: True}) == {job: JobEnd(job)}
    assert slurm.asked == []


@pytest.mark.parametrize(
    ("nodes", "node", "is_there"),
    [
        ("n3", "n3", True),
        ("n3", "n33", False),
        ("n[1-3,7]", "n7", True),
        ("n[1-3,7]", "n4", False),
        ("login,n[01-12]-x", "n07-x", True),
        ("login,n[01-12]-x", "n7-x", False),
        ("n[8-12]", "n10", True),
        ("n[8-12]", "n010", False),
        ("n[1-2]r[3-4]", "n2r4", True),
        ("n[1-2]r[3-4]", "n2r5", False),
        ("n[1-3", "n2", False),
        ("n[a-b]", "n1", False),
        ("", "n3", False),
    ],
)
def test_a_list_of_nodes_is_read_as_slurm_writes_it(nodes: str, node: str, is_there: bool) -> None:
    assert has_node(nodes, node) == is_there


def test_a_command_that_is_not_there_says_nothing_and_one_that_hangs_is_ended() -> None:
    assert run_command(["mulligan-no-such-command"], 1) == ""
    assert run_command(["sleep", "60"], 0.01) is None
    assert run_command(["sh", "-c", "echo out; echo err >&2; exit 3"], 10) == "out\n"


@pytest.mark.parametrize(
    ("printed", "seconds"),
    [
        ("17  1-02:03:04\n", 93784.0),
        ("17  59:59\n", 3599.0),
        ("17  0:00\n", 0.0),
        ("17  UNLIMITED\n", None),
        ("17  NOT_SET\n", None),
        ("17  INVALID\n", None),
        ("17  -1:00\n", None),
        # The jobs of an array of which it has the number.
        ("16  1:00\n17  2:00\n18  3:00\n", 120.0),
        ("17\n", None),
        ("", None),
        (None, None),
    ],
)
def test_a_worker_asks_how_long_its_job_runs_on(printed: str | None, seconds: float | None) -> None:
    assert job_seconds_left(JOB, {}, lambda command, limit: printed) == seconds


def test_newer_versions_of_slurm_say_it_in_a_variable() -> None:
    def run(command: Sequence[str], seconds: float) -> str:
        raise AssertionError

    assert job_seconds_left(JOB, {"SLURM_JOB_END_TIME": "1060"}, run, lambda: 1000.5) == 59.5
    assert job_seconds_left(JOB, {"SLURM_JOB_END_TIME": "900"}, run, lambda: 1000.5) == 0.0
