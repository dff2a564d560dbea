"""`mulligan pending`, `classify` and `approve`: what waits for a person, and the person's word."""

from __future__ import annotations

from pathlib import Path

import pytest

from .commands import mulligan, ran, workflow

pytestmark = pytest.mark.usefixtures("folder")

PARKED = """\
name: parked
steps:
  - step: simulate
    shell: |
      test -e fixed && exit 0
      echo step 879 >&2
      echo diverged >&2
      exit 42
    triage: true
  - {step: publish, needs: [simulate], shell: echo published}
"""
ASKING = """\
name: asking
steps:
  - {step: gate, approve: 'deploy to prod?'}
  - {step: go, needs: [gate], shell: echo gone}
"""
LATER = "name: later\nsteps:\n  - step: gate\n    approve: {message: 'now?', timeout: 2h, default: approve}\n"


# pending


def test_nothing_waits_where_nothing_was_run():
    assert mulligan("pending") == (0, "", "nothing waits for a person\n")
    assert mulligan("pending", "--json").json == []


def test_what_waits_is_told_over_all_runs_with_what_one_must_know():
    ran(PARKED)
    ran(ASKING)

    assert mulligan("pending") == (
        0,
        "run 1 of 'parked': 'simulate' is parked, EXIT_NONZERO 42: diverged\n"
        "  | step 879\n"
        "  | diverged\n"
        "  mulligan classify 1 simulate retry --reason TEXT (or fail)\n"
        "run 2 of 'asking': 'gate' waits for an approval: deploy to prod?\n"
        "  mulligan approve 2 gate --reason TEXT (or --no)\n",
        "",
    )


def test_what_happens_by_itself_is_told_with_the_time_left():
    ran(LATER)

    assert mulligan("pending").out.splitlines()[1] in (
        "  mulligan approve 1 gate --reason TEXT (or --no); else approve in 2h00m",
        "  mulligan approve 1 gate --reason TEXT (or --no); else approve in 1h59m",
    )


def test_what_waits_as_json_is_a_list_of_objects():
    ran(PARKED)
    ran(ASKING)

    parked, asking = mulligan("pending", "--json").json

    assert (parked["run_id"], parked["workflow"], parked["step"], parked["kind"]) == (1, "parked", "simulate", "parked")
    assert parked["failure"]["exit_code"] == 42
    assert (asking["run_id"], asking["step"], asking["kind"]) == (2, "gate", "approval")
    assert (asking["message"], asking["failure"], asking["due"]) == ("deploy to prod?", None, None)


def test_what_was_decided_waits_no_longer():
    ran(PARKED)

    mulligan("classify", 1, "simulate", "fail", "--reason", "hopeless")

    assert mulligan("pending", "--json").json == []


# classify


def test_a_parked_step_is_tried_again_and_the_run_goes_on():
    ran(PARKED)
    Path("fixed").touch()

    said = mulligan("classify", 1, "simulate", "retry", "--reason", "fixed the mesh", "--follow")

    assert said.code == 0
    assert said.err.startswith("run 1: 'simulate' is tried again\n")
    assert mulligan("show", 1, "--json").json["status"] == "completed"


def test_what_the_next_attempt_gets_is_recorded_with_the_word():
    ran(PARKED)

    said = mulligan("classify", 1, "simulate", "retry", "--reason", "x", "--memory", "2GiB", "--timeout", "1h30m")

    assert said == (0, "", "run 1: 'simulate' is tried again\nnobody drives it: mulligan resume 1\n")
    assert 'adjusted={"memory": 2147483648, "timeout": 5400.0}' in mulligan("events", 1).out


def test_a_parked_step_that_fails_fails_the_run():
    ran(PARKED)

    said = mulligan("classify", 1, "simulate", "fail", "--reason", "hopeless", "--json")

    assert (said.code, said.json["status"]) == (0, "failed")
    assert said.err == "run 1: 'simulate' has failed\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("publish", "retry", "--reason", "x"),
            "error[step.not_parked]: step 'publish' is waiting, so there is nothing to classify\n",
        ),
        (("simulte", "retry", "--reason", "x"), "error[step.unknown]: 'simulte' is not a step of run 1\n"),
        (
            ("simulate", "retry"),
            "error[input.invalid]: a classification needs a reason\n  say why: --reason TEXT\n",
        ),
        (("simulate", "maybe", "--reason", "x"), "error[usage]: 'maybe' is no verdict\n  say retry or fail\n"),
        (
            ("simulate", "retry", "--reason", "x", "--memory", "lots"),
            "error[input.invalid]: 'lots' is not a size\n  write it like 512MiB or 4GB\n",
        ),
        (
            ("simulate", "retry", "--reason", "x", "--timeout", "soon"),
            "error[input.invalid]: 'soon' is not a duration\n  write it like 30s, 5m or 1h30m\n",
        ),
        (
            ("simulate", "retry", "--reason", "x", "--timeout", "0s"),
            "error[input.invalid]: timeout must be more than nothing, not 0\n",
        ),
        (
            ("simulate", "fail", "--reason", "x", "--memory", "1GiB"),
            "error[usage]: what fails has no next attempt\n  leave out --memory and --timeout, or say retry\n",
        ),
        (
            ("simulate",),
            "error[usage]: missing argument 'retry|fail'\n  how it is used: mulligan classify --help\n",
        ),
    ],
    ids=["not parked", "unknown", "no reason", "no verdict", "memory", "timeout", "no time", "fail", "nothing"],
)
def test_a_classification_that_makes_no_sense_is_refused_and_changes_nothing(words: tuple[str, ...], said: str):
    ran(PARKED)
    before = mulligan("events", 1, "--json").out

    assert mulligan("classify", 1, *words) == (2, "", said)
    assert mulligan("events", 1, "--json").out == before


# approve


def test_an_approval_lets_the_run_go_on():
    ran(ASKING)

    said = mulligan("approve", 1, "gate", "--reason", "all green", "--follow", "--json")

    assert (said.code, said.json["status"]) == (0, "completed")
    assert said.json["steps"]["gate"]["output"]["reason"] == "all green"
    assert said.err.startswith("run 1: 'gate' is approved\n")


def test_a_refusal_fails_the_step():
    ran(ASKING)

    said = mulligan("approve", 1, "gate", "--no", "--reason", "not on a friday", "--follow", "--json")

    assert (said.code, said.json["status"]) == (1, "failed")
    assert said.json["steps"]["gate"]["failure"]["code"] == "APPROVAL_REFUSED"
    assert said.err.startswith("run 1: 'gate' is refused\n")


MANY = """\
name: many
steps:
  - step: ask
    map: {over: "${['a', 'b']}", as: one}
    do: [{approve: "release ${one}?"}]
"""


def test_one_approval_of_many_is_named_by_its_place():
    ran(MANY)

    assert mulligan("approve", 1, "ask", "--reason", "x") == (
        2,
        "",
        "error[refused]: 2 approvals wait in step 'ask': ask[0].0, ask[1].0\n  name one of them\n",
    )
    assert mulligan("approve", 1, "ask[0].0", "--reason", "x").code == 0
    assert mulligan("approve", 1, "ask", "--reason", "x", "--follow").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("go", "--reason", "x"), "error[step.not_waiting]: 'go' does not wait for an approval\n"),
        (("nope", "--reason", "x"), "error[step.not_waiting]: 'nope' does not wait for an approval\n"),
        (("gate",), "error[input.invalid]: an approval needs a reason\n  say why: --reason TEXT\n"),
    ],
    ids=["not asking", "unknown", "no reason"],
)
def test_an_approval_that_makes_no_sense_is_refused(words: tuple[str, ...], said: str):
    ran(ASKING)

    assert mulligan("approve", 1, *words) == (2, "", said)


def test_an_answer_to_a_child_run_takes_the_whole_tree_on():
    workflow(ASKING, "inner.yaml")
    ran("name: outer\nsteps:\n  - {step: inner, workflow: inner.yaml}\n")

    said = mulligan("approve", 2, "gate", "--reason", "x", "--follow", "--json")

    assert (said.code, said.json["run_id"], said.json["status"]) == (0, 1, "completed")


def test_where_a_child_moves_first_it_is_still_the_run_itself_that_is_told_of():
    workflow(ASKING, "inner.yaml")
    ran(
        "name: outer\nsteps:\n  - {step: inner, workflow: inner.yaml}\n"
        "  - {step: broken, needs: [inner], shell: exit 3}\n  - {step: last, shell: 'true'}\n"
    )

    said = mulligan("approve", 2, "gate", "--reason", "x", "--follow")

    assert said.code == 1
    assert "(3 steps, 1 failed)" in said.err
