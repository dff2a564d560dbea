"""Torc's files, run: what happens when jobs fail, in the way in which Torc's users mean it."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest
from tests.support.runner import Live, Ran

from mulligan.core.model import events as e
from mulligan.errors import InputInvalid, MulliganError
from mulligan.service.driving.driver import Capacity


def statuses(ran: Ran) -> dict[str, str]:
    return {name: step["status"] for name, step in ran.steps.items()}


def attempts(ran: Ran) -> dict[str, int]:
    return {name: step["attempts"] for name, step in ran.steps.items()}


HANDLERS = """
name: handlers
failure_handlers:
  - name: h
    rules:
      - {exit_codes: [10], max_retries: 3, recovery_script: 'echo "fixed $TORC_RETURN_CODE" >> fixed.txt'}
      - {exit_codes: [11], max_retries: 4}
      - {match_all_exit_codes: true, max_retries: 2}
  - name: one
    rules: [{match_all_exit_codes: true, max_retries: 1}]
  - name: killed
    rules: [{exit_codes: [-1], max_retries: 2}]
  - name: by_nine
    rules: [{exit_codes: [-9], max_retries: 2}]
jobs:
  # three attempts in all
  - {name: thrice, command: exit 10, failure_handler: h}
  # 10, 11, 12: each time another rule is asked, and the one for any failure grants nothing after two attempts
  - {name: mixed, command: 'exit $((9 + TORC_ATTEMPT_ID))', failure_handler: h}
  - {name: other, command: exit 5, failure_handler: h}
  - {name: heals, command: '[ $TORC_ATTEMPT_ID -gt 1 ] || exit 7', failure_handler: h}
  - {name: no_retry, command: exit 5, failure_handler: one}
  - {name: no_handler, command: exit 5}
  - {name: signalled, command: 'kill -TERM $$', failure_handler: killed}
  - {name: shot, command: 'kill -KILL $$', failure_handler: by_nine}
  - {name: not_shot, command: 'exit 9', failure_handler: by_nine}
"""


def test_max_retries_are_attempts_of_the_job_over_all_rules(live: Live) -> None:
    ran = live.run(HANDLERS)

    assert attempts(ran) == {
        "thrice": 3,
        "mixed": 3,
        "other": 2,
        "heals": 2,
        "no_retry": 1,
        "no_handler": 1,
        "signalled": 2,
        "shot": 2,
        "not_shot": 1,
    }
    assert {name for name, status in statuses(ran).items() if status == "completed"} == {"heals"}
    assert (live.folder / "fixed.txt").read_text() == "fixed 10\n" * 3


MISSING = """
name: missing
files: [{name: out, path: out.txt}, {name: sum, path: sum.txt}]
failure_handlers:
  - {name: h, rules: [{exit_codes: [1], max_retries: 3, recovery_script: 'echo "$TORC_RETURN_CODE" > rc'}]}
jobs:
  - {name: make, command: '[ $TORC_ATTEMPT_ID -lt 2 ] || echo hi > ${files.output.out}', failure_handler: h}
  - {name: take, command: 'cat ${files.input.out} > ${files.output.sum}'}
"""


def test_a_job_that_leaves_out_its_file_has_exited_with_1_to_its_handler(live_file: Live) -> None:
    ran = live_file.run(MISSING)

    assert (ran.status, attempts(ran)) == ("completed", {"make": 2, "take": 1})
    assert (live_file.folder / "rc").read_text() == "1\n"
    assert (live_file.folder / "sum.txt").read_text() == "hi\n"


def test_a_file_that_nobody_writes_must_be_there_before_anything_runs(live_file: Live) -> None:
    text = """
        name: w
        files: [{name: mesh, path: no/mesh.vtk}]
        jobs: [{name: a, command: touch ran}, {name: b, command: 'cat ${files.input.mesh}'}]
    """

    with pytest.raises(MulliganError) as refused:
        live_file.run(text)

    assert refused.value.message == "file 'no/mesh.vtk' does not exist, and no step writes it"
    assert not (live_file.folder / "ran").exists()


QUOTED = """
name: quoted
user_data: [{name: u, data: {a: '${x} ${inputs.y} $HOME'}}]
jobs:
  - name: data
    command: echo '${user_data.input.u}'
  - name: document
    command: |
      cat <<'EOF'
      ${inputs.x} ${steps["a"].output} ${user.name} ${x}
      EOF
  - name: loop
    command: for attempt in 1 2; do for step in a; do item=b; echo "${attempt}${step}${item}"; done; done
"""


def test_what_the_shell_does_not_expand_is_not_ours_either(live_file: Live) -> None:
    ran = live_file.run(QUOTED)

    assert {name: step["output"] for name, step in ran.steps.items()} == {
        "data": '{"a":"${x} ${inputs.y} $HOME"}',
        "document": '${inputs.x} ${steps["a"].output} ${user.name} ${x}',
        "loop": "1ab\n2ab",
    }


BLOCKED = """
name: blocked
files: [{name: f, path: f.txt}]
jobs:
  - {name: bad, command: exit 3, output_files: [f]}
  - {name: good, command: 'true'}
  - {name: waits, command: 'true', depends_on: [bad, good]}
  - {name: waits_again, command: 'true', depends_on: [waits]}
  - {name: reads, command: 'true', input_files: [f]}
  - {name: anyway, command: 'true', depends_on: [bad], cancel_on_blocking_job_failure: false}
  - {name: reads_anyway, command: 'true', input_files: [f], cancel_on_blocking_job_failure: false}
  - {name: after_skipped, command: 'true', depends_on: [waits_again], cancel_on_blocking_job_failure: false}
"""


def test_jobs_are_cancelled_with_those_they_depend_on_unless_they_say_otherwise(live: Live) -> None:
    ran = live.run(BLOCKED)

    assert ran.status == "failed"
    assert statuses(ran) == {
        "bad": "failed",
        "good": "completed",
        "waits": "skipped",
        "waits_again": "skipped",
        "reads": "skipped",
        "anyway": "completed",
        "reads_anyway": "completed",
        "after_skipped": "completed",
    }


PARKED = """
name: parked
use_pending_failed: true
failure_handlers: [{name: h, rules: [{exit_codes: [10], max_retries: 2}]}]
jobs:
  - {name: unmatched, command: '[ $TORC_ATTEMPT_ID -gt 1 ] || exit 5', failure_handler: h}
  - {name: exhausted, command: exit 10, failure_handler: h}
  - {name: after, command: 'true', depends_on: [unmatched]}
"""


def test_a_failure_that_no_rule_matches_is_parked_and_one_that_is_used_up_has_failed(live: Live) -> None:
    ran = live.run(PARKED)

    assert ran.exit_code == 4
    assert statuses(ran) == {"unmatched": "pending_failed", "exhausted": "failed", "after": "waiting"}


def test_a_parked_job_that_is_classified_as_retry_goes_on(live_file: Live) -> None:
    parked = live_file.run(PARKED)

    live_file.service.changes.classify(parked.run_id, "unmatched", "retry", "it was the disk")
    ran = live_file.resume(parked.run_id)

    assert statuses(ran) == {"unmatched": "completed", "exhausted": "failed", "after": "completed"}


SWEEP = """
name: sweep
parameters: {i: 1:12, lr: '[0.1,0.01]'}
files: [{name: 'out_{i}_{lr}', path: 'out/{i:03d}_{lr:.2f}.txt', use_parameters: [i, lr]}]
jobs:
  - {name: prepare, command: mkdir -p out}
  - name: 'train_{i:03d}_lr{lr:.2f}'
    command: 'echo {i} {lr} > ${files.output.out_{i}_{lr}}'
    depends_on: [prepare]
    use_parameters: [i, lr]
  - name: 'per_lr_{lr}'
    command: 'cat out/*_{lr:.2f}.txt | wc -l'
    input_files: ['out_{i}_{lr}']
    use_parameters: [i, lr]
  - {name: all, command: 'cat out/*.txt | wc -l', depends_on_regexes: ['^train_']}
"""


def test_a_sweep_with_barriers_runs_every_combination_once(live: Live) -> None:
    ran = live.run(SWEEP)

    assert (ran.status, len(ran.steps)) == ("completed", 28)
    assert {name: step["output"].strip() for name, step in ran.steps.items() if name.startswith(("per", "all"))} == {
        "per_lr_0_1": "12",
        "per_lr_0_01": "12",
        "all": "24",
    }
    last = max(entry.seq for entry in ran.entries(e.StepCompleted) if entry.fact.step.startswith("train"))  # type: ignore[attr-defined]
    (gathered,) = ran.entries(e.AttemptStarted, place="all")
    assert gathered.seq > last


ORDERED = """
name: ordered
jobs_sort_method: {method}
resource_requirements:
  - {{name: long, num_cpus: 1, memory: 64m, runtime: PT2H}}
  - {{name: large, num_cpus: 1, memory: 96m, runtime: PT1H}}
jobs:
  - {{name: plain, command: 'true'}}
  - {{name: large, command: 'true', resource_requirements: large}}
  - {{name: long, command: 'true', resource_requirements: long}}
"""
ORDERS = [
    ("gpus_runtime_memory", ["long", "large", "plain"]),
    ("gpus_memory_runtime", ["large", "long", "plain"]),
    ("none", ["plain", "large", "long"]),
]


@pytest.mark.parametrize(("method", "order"), ORDERS)
def test_of_jobs_that_are_ready_the_largest_goes_first(live_file: Live, method: str, order: list[str]) -> None:
    ran = live_file.run(ORDERED.format(method=method), room=Capacity(cpus=1.0, memory=1 << 30))

    assert [fact.place for fact in ran.facts(e.AttemptStarted) if fact.place in order] == order


def test_a_job_that_asks_for_more_than_there_is_is_refused_before_anything_runs(live_file: Live) -> None:
    with pytest.raises(InputInvalid) as refused:
        live_file.run(
            "name: big\nresource_requirements: [{name: r, num_cpus: 64, memory: 64m}]\n"
            "jobs: [{name: a, command: 'true', resource_requirements: r}]\n"
        )

    assert "64 cpus (there are 4; --parallel 64 allows it)" in str(refused.value)


PACKED = """
name: packed
resource_requirements:
  - {name: half, num_cpus: 1, memory: 64m}
  - {name: whole, num_cpus: 2, memory: 64m}
jobs:
  # each waits for the other, so both are there at once
  - {name: left, command: 'echo here > to_right; cat to_left', resource_requirements: half}
  - {name: right, command: 'cat to_right; echo here > to_left', resource_requirements: half}
  - {name: 'alone_{i}', command: 'mkdir alone && rmdir alone', resource_requirements: whole, parameters: {i: '1:4'}}
"""


def test_jobs_are_packed_by_what_they_ask_for(live_file: Live) -> None:
    for name in ("to_left", "to_right"):
        os.mkfifo(live_file.folder / name)

    ran = live_file.run(PACKED, room=Capacity(cpus=2.0, memory=1 << 30))

    assert set(statuses(ran).values()) == {"completed"}
    started = {fact.place: entry.seq for entry in ran.entries(e.AttemptStarted) if (fact := entry.fact)}  # type: ignore[attr-defined]
    ended = {fact.step: entry.seq for entry in ran.entries(e.StepCompleted) if (fact := entry.fact)}  # type: ignore[attr-defined]
    whole = sorted((started[name], ended[name]) for name in started if name.startswith("alone"))
    assert all(before[1] < after[0] for before, after in pairwise(whole))


def test_how_much_runs_at_once_can_be_said(live_file: Live) -> None:
    """A job of a cluster's file asks for more than any laptop has: whoever runs it says that it may."""
    live_file.write(
        "big.yaml",
        "name: big\nresource_requirements: [{name: r, num_cpus: 4096, num_gpus: 99, memory: 900t}]\n"
        "jobs: [{name: a, command: 'true', resource_requirements: r}]\n",
    )

    codes = []
    for more in ((), ("--parallel", "4096", "--gpus", "99", "--memory", "900TiB")):
        with live_file.process("run", "big.yaml", *more) as process:
            process.communicate()
            codes.append(process.returncode)

    assert codes == [2, 0]


def test_a_workflow_without_jobs_runs_to_its_end(live: Live) -> None:
    action = "{trigger_type: on_workflow_complete, action_type: run_commands, commands: [touch done]}"

    ran = live.run(f"name: empty\njobs: []\nactions: [{action}]\n")

    assert ran.status == "completed"
    assert (live.folder / "output" / "done").exists()


# Torc's tutorial on user data, with our command for setting it.
USER_DATA = """
name: user data
user_data: [{name: config}, {name: plan, data: {layers: 3}}]
jobs:
  - name: generate
    command: mulligan data set config "{\\"rate\\":0.1, \\"note\\":\\"it is\\"}"
    output_user_data: [config]
  - name: train
    command: |
      echo '${user_data.input.config}' > quoted
      echo ${user_data.input.config} > plain
      echo '${user_data.input.plan}' > plan
  - name: check
    command: mulligan data get config > got
    input_user_data: [config]
"""


def test_user_data_that_one_job_sets_is_read_by_the_jobs_after_it(live_file: Live) -> None:
    ran = live_file.run(USER_DATA)

    assert ran.status == "completed"
    config = '{"rate":0.1,"note":"it is"}'
    assert {name: live_file.lines(name) for name in ("quoted", "plain", "got", "plan")} == {
        **{name: [config] for name in ("quoted", "plain", "got")},
        "plan": ['{"layers":3}'],
    }
    assert ran.shown["data"]["config"]["version"] == 2


def test_user_data_that_a_job_forgets_to_set_is_empty(live_file: Live) -> None:
    ran = live_file.run("""
        name: forgotten
        user_data: [{name: u}]
        jobs:
          - {name: a, command: 'true', output_user_data: [u]}
          - {name: b, command: 'echo "<${user_data.input.u}>"'}
    """)

    assert ran.steps["b"]["output"] == "<>"
