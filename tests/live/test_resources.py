"""Resources, live: tasks are packed by what they ask for, each has its own GPUs, what never fits is told at once."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.runner import Live, Ran, Terminal

from mulligan.core.model import events as e
from mulligan.errors import InputInvalid
from mulligan.language import load_text
from mulligan.service.driving.driver import Capacity
from mulligan.service.driving.local_worker import open_driver
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.server.tokens.tokens import TokenForm

TWO_CPUS = Capacity(cpus=2.0, memory=1 << 30)


def most_at_once(ran: Ran, asked: dict[str, float]) -> float:
    """The most that was asked for by tasks which were at work at the same moment, as their processes were measured."""
    spans = [
        (fact.usage["started"], fact.usage["ended"], asked[fact.place])
        for fact in ran.facts(e.AttemptSucceeded)
        if fact.place in asked
    ]
    return max(sum(cpus for start, end, cpus in spans if start <= began < end) for began, _, _ in spans)


def test_tasks_at_work_never_ask_for_more_cpus_together_than_there_are(live: Live) -> None:
    asked = {f"s{number}": (0.5, 1.0, 2.0, 0.25)[number % 4] for number in range(16)}
    steps = [f"  - {{step: {name}, shell: sleep 0.02, resources: {{cpus: {cpus}}}}}" for name, cpus in asked.items()]

    ran = live.run("\n".join(["name: packed", "steps:", *steps, ""]), room=TWO_CPUS)

    assert ran.status == "completed"
    assert most_at_once(ran, asked) <= 2.0


def test_memory_is_packed_too(live_file: Live) -> None:
    steps = [f"  - {{step: m{n}, shell: sleep 0.02, resources: {{cpus: 0.1, memory: 600MiB}}}}" for n in range(3)]

    ran = live_file.run("\n".join(["name: heavy", "steps:", *steps, ""]), room=TWO_CPUS)

    assert most_at_once(ran, {f"m{n}": 1.0 for n in range(3)}) == 1.0


def test_one_that_does_not_fit_now_lets_smaller_ones_pass(live: Live) -> None:
    """`first` ends only when `small` has run, which is behind `large` in the queue."""
    ran = live.run(
        """
        name: passing
        steps:
          - {step: first, shell: 'until [ -e passed ]; do sleep 0.01; done'}
          - {step: large, shell: 'true', resources: {cpus: 2}}
          - {step: small, shell: touch passed}
        """,
        room=TWO_CPUS,
    )

    assert ran.status == "completed"
    assert [fact.place for fact in ran.facts(e.AttemptSucceeded)][-1] == "large"


LACKING = [
    ("cpus: 3", "3 cpus (there are 2; --parallel 3 allows it)"),
    ("memory: 2GiB", "2.0GiB of memory (there is 1.0GiB; --memory 2GiB allows it)"),
    ("gpus: 1", "1 gpu (there is none; --gpus 1 allows it)"),
    ("labels: [fast]", "label 'fast' (it has none; a worker with --labels fast has it)"),
]


@pytest.mark.parametrize(("resources", "lacking"), LACKING)
def test_what_is_more_than_the_machine_has_is_said_before_anything_runs(
    live_file: Live, resources: str, lacking: str
) -> None:
    steps = f"  - {{step: first, shell: touch ran}}\n  - {{step: a, shell: 'true', resources: {{{resources}}}}}\n"

    with pytest.raises(InputInvalid) as refused:
        live_file.run(f"name: large\nsteps:\n{steps}", room=TWO_CPUS)

    assert str(refused.value) == f"step 'a' asks for more than this machine can give: {lacking}"
    assert not (live_file.folder / "ran").exists()


@pytest.mark.parametrize(("resources", "lacking"), LACKING)
def test_a_step_whose_failure_is_handled_fails_at_once(live_file: Live, resources: str, lacking: str) -> None:
    step = f"{{step: a, shell: 'true', resources: {{{resources}}}, continue_on_error: true}}"

    ran = live_file.run(f"name: large\nsteps:\n  - {step}\n", room=TWO_CPUS)

    failure = ran.steps["a"]["failure"]
    message = f"no worker here can ever take it: it asks for {lacking}"
    assert (ran.status, failure["code"], failure["message"]) == ("completed", "NO_CAPACITY", message)


FAR_AND_NEAR = """
name: far
steps:
  - {step: far, shell: 'true', resources: {labels: [fast]}, continue_on_error: true}
  - {step: near, shell: 'true'}
"""
REMOTE = TokenForm(user="builder", scopes=("worker",))


def served(live: Live) -> dict[str, Any]:
    """How the steps of the run stand when a worker that was started after it has run `near`."""
    with open_driver(live.service.reader) as nobody:
        [run_id] = live.service.changes.create(prepare(load_text(FAR_AND_NEAR), {}, live.folder), nobody)
        nobody.serve(until=lambda: nobody.engine.is_settled)
    with live.service.driving.driver(TWO_CPUS) as worker:
        worker.serve(until=lambda: live.look(run_id).steps["near"]["status"] == "completed")
    return live.look(run_id).steps["far"]


def test_a_worker_lets_a_step_wait_for_remote_workers_if_there_is_a_token_for_them(live_file: Live) -> None:
    live_file.service.tokens.create(REMOTE)

    assert served(live_file)["status"] == "ready"


@pytest.mark.parametrize("scopes", [("admin",), ("worker",)])
def test_a_worker_whom_no_remote_worker_can_join_lets_the_step_fail(live_file: Live, scopes: tuple[str, ...]) -> None:
    token = live_file.service.tokens.create(TokenForm(user="builder", scopes=scopes))
    if scopes == REMOTE.scopes:
        live_file.service.tokens.revoke(token.token.id)

    assert served(live_file)["failure"]["code"] == "NO_CAPACITY"


def test_a_process_that_drives_one_run_waits_for_no_remote_worker(live_file: Live) -> None:
    live_file.service.tokens.create(REMOTE)

    ran = live_file.run(FAR_AND_NEAR, room=TWO_CPUS)

    assert (ran.status, ran.steps["far"]["failure"]["code"]) == ("completed", "NO_CAPACITY")


def test_tasks_at_work_together_have_different_gpus(live: Live) -> None:
    """Each says that it is there and waits for the other."""
    live.write("meet.sh", 'mkdir "$1"; until [ -d "$2" ]; do sleep 0.01; done; echo "$CUDA_VISIBLE_DEVICES"\n')

    ran = live.run(
        """\
        name: gpus
        steps:
          - {step: a, shell: bash meet.sh a b, resources: {gpus: 1}}
          - {step: b, shell: bash meet.sh b a, resources: {gpus: 1}}
        """.replace("        ", ""),
        room=Capacity(cpus=2.0, memory=1 << 30, gpus=2),
    )

    assert sorted(ran.steps[name]["output"] for name in "ab") == ["0", "1"]


def test_after_out_of_memory_the_next_attempt_has_more_and_knows_how_much(live_file: Live) -> None:
    ran = live_file.run(
        """\
        name: adjusted
        steps:
          - step: solve
            shell: |
              echo "$MULLIGAN_MEMORY"
              [ "$MULLIGAN_ATTEMPT" -gt 1 ] || { head -c 100000000 /dev/zero; sleep 100; } | tail -n 1
            resources: {memory: 40MiB}
            retry: {rules: [{codes: [OUT_OF_MEMORY], max_retries: 1, adjust: {memory: x1.5}}]}
        """.replace("        ", "")
    )

    [failed] = ran.facts(e.AttemptFailed)
    assert failed.failure.code == "OUT_OF_MEMORY"
    assert int(ran.steps["solve"]["output"]) >= 60 << 20


# -- why nobody takes a task -----------------------------------------------------------------------------------------

# The first is at work until it is told to end; the second waits for what the first has.
QUEUED = """
name: queued
steps:
  - {step: first, shell: 'until [ -e over ]; do sleep 0.01; done', resources: {cpus: 2}}
  - {step: second, shell: 'true'}
"""


@pytest.mark.postgres
def test_a_task_that_waits_for_a_worker_says_who_has_the_room(live: Live) -> None:
    seen: list[dict[str, Any]] = []

    def look(there: Terminal) -> None:
        there.wait_for(e.AttemptStarted, place="first")
        seen.extend(there.service.runs.show(there.run_id)["steps"]["second"]["waiting_for"])
        (there.folder / "over").touch()

    ran = live.run(QUEUED, room=TWO_CPUS, meanwhile=look)

    assert ran.status == "completed"
    [wait] = seen
    [obstacle] = wait["obstacles"]
    assert (wait["kind"], "is_impossible" in wait, obstacle["kind"]) == ("worker", False, "cpus")
    assert (obstacle["asked"], obstacle["largest"], obstacle["free"]) == (1.0, 2.0, 0.0)
    [holder] = obstacle["used_by"]
    assert (holder["run_id"], holder["place"], holder["cpus"]) == (ran.run_id, "first", 2.0)


def test_a_task_that_no_worker_of_a_shared_store_can_ever_take_says_what_it_lacks(live_server: Live) -> None:
    seen: list[dict[str, Any]] = []
    text = "name: w\nsteps: [{step: train, shell: 'true', resources: {memory: 64GiB, labels: [gpu]}}]"

    def look(there: Terminal) -> None:
        there.wait_for(e.AttemptScheduled, place="train")
        seen.extend(there.service.runs.show(there.run_id)["waiting_for"])
        there.service.changes.cancel(there.run_id)

    ran = live_server.run(text, room=TWO_CPUS, meanwhile=look)

    assert ran.status == "cancelled"
    [wait] = seen
    assert wait["is_impossible"] and [one["labels"] for one in wait["obstacles"]] == [["gpu"]]


def test_a_task_of_a_run_that_nobody_drives_says_so(live_file: Live) -> None:
    text = "name: w\nsteps: [{step: gate, approve: {message: go?}}, {step: work, needs: [gate], shell: 'true'}]"
    ran = live_file.run(text)

    live_file.service.changes.approve(ran.run_id, "gate", is_approved=True, reason="yes")

    [wait] = live_file.service.runs.show(ran.run_id)["waiting_for"]
    assert [one["kind"] for one in wait["obstacles"]] == ["no_worker"]
    assert wait["text"] == "a worker for attempt 1: nothing is running the run"
