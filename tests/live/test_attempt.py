"""`attempt` and `logs`, live: each attempt gets its own number, and its logs can be found under the user's names."""

from __future__ import annotations

from tests.support.runner import Live

RETRIED = """
name: retried
defaults: {env: {N: "${attempt}", WHO: "${step.number} ${step.name}"}}
steps:
  - step: a
    shell: 'echo "try $N"; [ $N = $MULLIGAN_ATTEMPT ] && [ $N = 3 ]'
    retry: {max_retries: 2, recovery_script: 'echo $N >> scripts'}
    logs: {stdout: "logs/a-${run.id}-${run.round}-${attempt}.o"}
  - step: items
    needs: [a]
    map: {over: [x, y]}
    do:
      - {shell: 'echo "$N $WHO"', logs: {stdout: "logs/${item}.o"}}
      - python: |
          def main(n):
              return n
        args: {n: "${attempt}"}
  - step: warned
    needs: [items]
    shell: echo warned >&2
    logs: {stderr: "logs"}
"""


def test_every_attempt_knows_its_number_and_has_its_own_log(live_file: Live) -> None:
    ran = live_file.run(RETRIED)

    assert ran.status == "completed"
    stem = f"logs/a-{ran.run_id}-1"
    assert [live_file.lines(f"{stem}-{number}.o") for number in (1, 2, 3)] == [["try 1"], ["try 2"], ["try 3"]]
    assert live_file.lines("scripts") == ["1", "2"]
    assert [live_file.lines(f"logs/{name}.o") for name in ("x", "y")] == [["1 2 items"], ["1 2 items"]]
    assert ran.steps["items"]["output"]["results"] == [2, 2]


def test_a_path_that_cannot_be_made_is_a_warning_of_the_step(live_file: Live) -> None:
    ran = live_file.run(RETRIED)

    (warning,) = ran.steps["warned"]["warnings"]
    assert warning["message"] == "cannot link 'logs' to its stderr: there is a file that is not a link"
    assert ran.steps["warned"]["status"] == "completed"


LOST = """
steps:
  - step: a
    shell: 'echo "try $N"; [ $N = 2 ] || { kill -9 $PPID; sleep 60; }'
    env: {N: "${attempt}"}
    logs: {stdout: "logs/${attempt}.o"}
"""


def test_an_attempt_that_was_lost_keeps_its_number_and_its_log(live: Live) -> None:
    ran = live.run(LOST)

    assert (ran.status, ran.steps["a"]["attempts"]) == ("completed", 2)
    assert [live.lines(f"logs/{number}.o") for number in (1, 2)] == [["try 1"], ["try 2"]]
